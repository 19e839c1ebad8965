#pragma once

namespace cordma {

/// \errors  errc::limit_exceeded: `value` is not from `low` to `high`; the detail names all three.
void check_option(const char* options, const char* name, long long value, long long low,
                  long long high);

}  // namespace cordma
