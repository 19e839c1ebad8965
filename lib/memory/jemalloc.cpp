#include "jemalloc.hpp"

#include <cordma/base/error.hpp>

namespace cordma::jemalloc {

void check(int error, const char* name) {
  if (error == 0) return;
  throw cordma::error{errno_failure(error, "mallctl", {}, name)};
}

void call(const char* name) { check(mallctl(name, nullptr, nullptr, nullptr, 0), name); }

}  // namespace cordma::jemalloc
