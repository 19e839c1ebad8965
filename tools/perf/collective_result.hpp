#pragma once

#include "collective_case.hpp"

#include <cstdint>
#include <vector>

namespace perf {

/// The rounds of a case: odd, so that the median is one of them.
inline constexpr std::size_t collective_rounds = 15;

/// The time of one algorithm: medians over rounds. Of each round it is the slowest rank's, or from
/// the first rank's begin to the last one's end.
struct algorithm_time {
  const algorithm* by = nullptr;
  double us = 0;
  double us_low = 0, us_high = 0;  ///< quartiles over the rounds
  std::uint64_t operations = 0;    ///< measured, on each rank
};

/// Lines of the table: one case, by one algorithm or by several in turns.
struct collective_result {
  collective_case what{};
  const algorithm* builtin = nullptr;  ///< the choice of the table that nobody changed
  std::vector<algorithm_time> times{};

  [[nodiscard]] double gigabytes_per_second(const algorithm_time& t) const noexcept {
    return t.us > 0 ? double(what.moved_bytes()) / t.us / 1e3 : 0;
  }
};

}  // namespace perf
