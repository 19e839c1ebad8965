#include "check_option.hpp"

#include <cordma/base/error.hpp>

#include <cstdio>

namespace cordma {

void check_option(const char* options, const char* name, long long value, long long low,
                  long long high) {
  if (value >= low && value <= high) return;
  char text[120];
  std::snprintf(text, sizeof text, "%s %lld is not between %lld and %lld", name, value, low, high);
  throw error{{.code = errc::limit_exceeded, .call = options, .detail = text}};
}

}  // namespace cordma
