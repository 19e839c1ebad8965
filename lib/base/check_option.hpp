#pragma once

#include <cordma/base/time.hpp>

namespace cordma {

/// \errors  errc::limit_exceeded: `value` is not from `low` to `high`; the detail names all three.
void check_option(const char* options, const char* name, long long value, long long low,
                  long long high);

/// \errors errc::limit_exceeded: `value` is not from `low` to `high`; the detail names all three in
///   milliseconds.
void check_option(const char* options, const char* name, time_span value, time_span low,
                  time_span high);
/// A timeout: 1 ms to 24 hours.
void check_timeout(const char* options, const char* name, time_span value);

}  // namespace cordma
