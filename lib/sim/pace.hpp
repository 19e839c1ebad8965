#pragma once

#include "decisions.hpp"

#include <cordma/base/time.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace cordma::sim::detail {

/// How long the steps of programs and devices take. In half of the worlds, all take some time up to
/// 2 us. In the other half each actor has a priority, and those of a low one are slow. At a few
/// random points the actor that goes on gets another priority (PCT: Burckhardt et al., ASPLOS
/// 2010).
class pace {
 public:
  explicit pace(decisions& schedule) : has_priorities_{schedule.up_to(1) == 1} {
    // Worlds take from a few hundred steps to tens of thousands, and how many is not known before.
    const std::uint64_t steps = steps_min << schedule.up_to(doublings_max);
    for (std::uint64_t& point : changes_) point = schedule.up_to(steps);
  }

  [[nodiscard]] duration step_time(unsigned actor, decisions& schedule) {
    const auto base = std::int64_t(schedule.up_to(2000));
    ++steps_;
    if (!has_priorities_) return duration{base};
    while (priorities_.size() <= actor)
      priorities_.push_back(unsigned(schedule.up_to(priority_max)));
    for (const std::uint64_t point : changes_)
      if (point == steps_) priorities_[actor] = unsigned(schedule.up_to(priority_max));
    return duration{base << (2 * priorities_[actor])};
  }

 private:
  /// Steps of the lowest priority take up to half a millisecond.
  static constexpr unsigned priority_max = 4;
  /// Changes are among the first 256 steps of a world at least, and the first 32768 at most.
  static constexpr std::uint64_t steps_min = 256;
  static constexpr unsigned doublings_max = 7;

  const bool has_priorities_;
  std::array<std::uint64_t, 4> changes_{};
  std::vector<unsigned> priorities_;
  std::uint64_t steps_ = 0;
};

}  // namespace cordma::sim::detail
