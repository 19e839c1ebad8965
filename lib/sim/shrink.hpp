#pragma once

#include "plan.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

namespace cordma::sim::detail {

/// Result of a try of a plan.
struct trial {
  bool is_found = false;  ///< the finding of before
  std::array<std::uint64_t, decision_kinds> decisions_made{};
  std::vector<std::uint64_t> faults_happened;
};

/// Returns a plan with few decisions that still shows the finding: first faults are taken back,
/// then delays, then the schedule. Tries at most `tries` plans. \param all  of the run without a
/// plan
plan shrink(const trial& all, unsigned tries, const std::function<trial(const plan&)>& run);

}  // namespace cordma::sim::detail
