#pragma once

#include <cordma/detail/base/export.hpp>

namespace cordma::detail {

/// Prints `file:line: contract broken: condition (why)` to stderr and aborts. Never returns.
CORDMA_EXPORT [[noreturn]] void contract_broken(const char* condition, const char* why,
                                                const char* file, int line) noexcept;

}  // namespace cordma::detail

/// Asserts a contract between this library and its program, or within the library, also in release
/// builds. Input from a peer, a file or the device causes an error instead. Write one condition
/// each.
#define CORDMA_ASSERT(condition, why) \
  (static_cast<bool>(condition)       \
       ? void(0)                      \
       : ::cordma::detail::contract_broken(#condition, why, __FILE__, __LINE__))

namespace cordma::detail {

/// Tells the compiler a fact that it cannot see, so that it omits the check.
/// UndefinedBehaviorSanitizer checks the fact.
[[gnu::always_inline]] inline void assume(bool holds) noexcept {
  if (!holds) __builtin_unreachable();
}

}  // namespace cordma::detail
