#pragma once

#include "base/failures.hpp"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstdint>
#include <string>

namespace cordma::verbs::detail {

using cordma::detail::detail_text;
using cordma::detail::throw_errno;
using cordma::detail::throw_failure;

/// Formats "RLIMIT_MEMLOCK is 8192 KiB; raise it (ulimit -l unlimited)", after `subject`. Use it
/// for calls that fail with ENOMEM or EPERM because they may not lock enough memory.
fixed_text<240> memlock_text(const char* subject) noexcept;

/// Formats why an object could not be made, after `subject`. The reason is too little lockable
/// memory if `needed_bytes` would exceed the limit; otherwise all `most` objects are in use.
/// Another errno than those of `may_be_memlock` has no reason: gives `subject`.
fixed_text<240> lack_text(int errno_value, const std::string& subject, std::uint64_t needed_bytes,
                          std::uint64_t most, const char* objects);

/// Returns true if the limit on locked memory can cause the failure. EPERM: the limit is zero.
constexpr bool may_be_memlock(int errno_value) noexcept {
  return errno_value == ENOMEM || errno_value == EPERM;
}

/// Returns true if the kernel found no route to a GID.
constexpr bool is_no_route(int errno_value) noexcept {
  return errno_value == ETIMEDOUT || errno_value == EHOSTUNREACH || errno_value == ENETUNREACH ||
         errno_value == ENODATA;
}
/// Formats that there is no route to the GID of `route`.
fixed_text<240> no_route_text(const ibv_global_route& route) noexcept;

/// Checks that low <= value <= high; `why` explains the bound. \errors errc::limit_exceeded.
void check_range(const char* call, const char* name, std::uint64_t value, std::uint64_t low,
                 std::uint64_t high, const char* why);

}  // namespace cordma::verbs::detail
