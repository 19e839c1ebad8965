#include "check_option.hpp"

#include "time_text.hpp"

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

void check_option(const char* options, const char* name, time_span value, time_span low,
                  time_span high) {
  if (value >= low && value <= high) return;
  char text[120];
  std::snprintf(text, sizeof text, "%s %s is not between %s and %s", name, to_text(value).c_str(),
                to_text(low).c_str(), to_text(high).c_str());
  throw error{{.code = errc::limit_exceeded, .call = options, .detail = text}};
}

void check_timeout(const char* options, const char* name, time_span value) {
  check_option(options, name, value, std::chrono::milliseconds{1}, std::chrono::hours{24});
}

}  // namespace cordma
