#pragma once

#include <cordma/detail/base/export.hpp>

namespace cordma::detail {

/// Prints `file:line: contract broken: condition (why)` to stderr and aborts. Never returns.
CORDMA_EXPORT [[noreturn]] void contract_broken(const char* condition, const char* why,
                                                const char* file, int line) noexcept;

}  // namespace cordma::detail

/// A contract between this library and the program that uses it, or within the library: checked in
/// release builds too. Never for input that comes from a peer, a file or the device: that is an
/// error. One condition each.
#define CORDMA_ASSERT(condition, why) \
  (static_cast<bool>(condition)       \
       ? void(0)                      \
       : ::cordma::detail::contract_broken(#condition, why, __FILE__, __LINE__))

namespace cordma::detail {

/// What the compiler cannot see: for what it would else look at each time. Checked by
/// UndefinedBehaviorSanitizer.
[[gnu::always_inline]] inline void assume(bool holds) noexcept {
  if (!holds) __builtin_unreachable();
}

}  // namespace cordma::detail
