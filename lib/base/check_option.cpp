#include "check_option.hpp"

#include "failures.hpp"
#include "time_text.hpp"

namespace cordma {

void check_option(const char* options, const char* name, long long value, long long low,
                  long long high) {
  if (value >= low && value <= high) return;
  detail::throw_failure(
      errc::limit_exceeded, options,
      detail::detail_text("%s %lld is not between %lld and %lld", name, value, low, high));
}

void check_option(const char* options, const char* name, time_span value, time_span low,
                  time_span high) {
  if (value >= low && value <= high) return;
  detail::throw_failure(
      errc::limit_exceeded, options,
      detail::detail_text("%s %s is not between %s and %s", name, to_text(value).c_str(),
                          to_text(low).c_str(), to_text(high).c_str()));
}

void check_timeout(const char* options, const char* name, time_span value) {
  check_option(options, name, value, std::chrono::milliseconds{1}, std::chrono::hours{24});
}

}  // namespace cordma
