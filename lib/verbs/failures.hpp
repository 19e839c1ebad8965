#pragma once

#include <cordma/base/error.hpp>
#include <cordma/detail/base/fixed_text.hpp>

#include <cerrno>
#include <cstdint>

namespace cordma::verbs::detail {

/// printf into a failure's detail.
[[gnu::format(printf, 1, 2)]] fixed_text<240> detail_text(const char* format, ...) noexcept;

[[noreturn]] void throw_failure(errc code, const char* call, fixed_text<240> detail,
                                object_id object = {});
[[noreturn]] void throw_errno(int errno_value, const char* call, fixed_text<240> detail = {},
                              object_id object = {});

/// "RLIMIT_MEMLOCK is 8192 KiB; raise it (ulimit -l unlimited)", after `subject`: for calls that
/// fail with ENOMEM or EPERM because they may not lock as much memory as they need.
fixed_text<240> memlock_text(const char* subject) noexcept;

/// Why an object could not be made, after `subject`: too little memory that may be locked, where
/// `needed_bytes` would exceed the limit, else `most` objects that are all in use.
fixed_text<240> lack_text(int errno_value, const char* subject, std::uint64_t needed_bytes,
                          std::uint64_t most, const char* objects);

/// Whether the failure can come from the limit on locked memory. EPERM: the limit is zero.
constexpr bool may_be_memlock(int errno_value) noexcept {
  return errno_value == ENOMEM || errno_value == EPERM;
}

/// Throws errc::limit_exceeded unless low <= value <= high; `why` explains the bound.
void check_range(const char* call, const char* name, std::uint64_t value, std::uint64_t low,
                 std::uint64_t high, const char* why);

}  // namespace cordma::verbs::detail
