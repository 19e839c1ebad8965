#pragma once

#include <cstdint>
#include <span>

namespace cordma::test {

/// An operation on a register, by a client that calls one at a time. Times are of any clock.
struct register_operation {
  static constexpr std::int64_t open = INT64_MAX;

  std::int64_t begin = 0;
  /// `open`: the answer was lost. A write may then take effect at any time, or never.
  std::int64_t end = open;
  bool is_write = false;
  std::uint64_t value = 0;  ///< Written, or read; initially 0.
};

/// Tells whether the operations may have happened one after another, each between its begin and its
/// end. Each read then gives what was written last.
///
/// \cost exponential in the operations at once, at worst; mostly little.
[[nodiscard]] bool is_linearizable(std::span<const register_operation> history);

}  // namespace cordma::test
