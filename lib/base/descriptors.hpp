#pragma once

#include <cerrno>

namespace cordma {

/// Whether a call failed because no file descriptor is left, and what to do about that.
constexpr bool lacks_descriptors(int errno_value) noexcept {
  return errno_value == EMFILE || errno_value == ENFILE;
}
inline constexpr const char* more_descriptors =
    "no file descriptor is left; close some, or raise RLIMIT_NOFILE (ulimit -n)";
/// Empty for another errno.
constexpr const char* way_out_of_descriptors(int errno_value) noexcept {
  return lacks_descriptors(errno_value) ? more_descriptors : "";
}

}  // namespace cordma
