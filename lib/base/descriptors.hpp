#pragma once

#include <cerrno>

namespace cordma {

/// Returns true if a call failed because no file descriptor is left.
constexpr bool lacks_descriptors(int errno_value) noexcept {
  return errno_value == EMFILE || errno_value == ENFILE;
}
inline constexpr const char* more_descriptors =
    "no file descriptor is left; close some, or raise RLIMIT_NOFILE (ulimit -n)";
/// Returns what to do about missing descriptors; empty for another errno.
constexpr const char* way_out_of_descriptors(int errno_value) noexcept {
  return lacks_descriptors(errno_value) ? more_descriptors : "";
}

}  // namespace cordma
