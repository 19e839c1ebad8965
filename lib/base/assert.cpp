#include <cordma/detail/base/assert.hpp>

#include <cstdio>
#include <cstdlib>

namespace cordma::detail {

void contract_broken(const char* condition, const char* why, const char* file, int line) noexcept {
  std::fprintf(stderr, "%s:%d: contract broken: %s (%s)\n", file, line, condition, why);
  std::abort();
}

}  // namespace cordma::detail
