#pragma once

#include <chrono>
#include <cstdint>

namespace softverbs {

/// CLOCK_MONOTONIC, or the time of a simulation.
class clock : public std::chrono::steady_clock {
 public:
  [[nodiscard]] static time_point now() noexcept {
    return simulated_ == nullptr ? steady_clock::now()
                                 : time_point{std::chrono::nanoseconds{*simulated_}};
  }
  /// From now on the time is `*nanoseconds`; null: CLOCK_MONOTONIC. \thread no other uses the
  /// clock.
  static void simulate(const std::int64_t* nanoseconds) noexcept { simulated_ = nanoseconds; }
  [[nodiscard]] static bool is_simulated() noexcept { return simulated_ != nullptr; }

 private:
  static inline constinit const std::int64_t* simulated_ = nullptr;
};

}  // namespace softverbs
