#pragma once

#include "histogram.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>

namespace perf {

using clock = std::chrono::steady_clock;

/// How one thread's operations are counted and timed, whoever does them: it says how long it goes
/// on. The clock is read once an operation: when one ends, the next one of the same worker begins.
/// \thread one; `done` any.
class meter {
 public:
  /// Allows `operations` from now on, or as many as begin within `longest`.
  void begin(std::uint64_t operations,
             std::chrono::nanoseconds longest = std::chrono::nanoseconds::max()) {
    latencies_.clear();
    done_.store(0, std::memory_order_relaxed);
    left_ = operations;
    began_ = now_ = clock::now();
    deadline_ =
        longest < clock::time_point::max() - began_ ? began_ + longest : clock::time_point::max();
  }
  /// Tells whether one more operation is to be done, which the caller then does.
  [[nodiscard]] bool takes_another() noexcept {
    if (left_ == 0 || now_ >= deadline_) return false;
    --left_;
    return true;
  }
  /// Notes that an operation that began at `start` has ended now. Gives the time.
  clock::time_point record(clock::time_point start) noexcept {
    now_ = clock::now();
    latencies_.add(now_ - start);
    // Relaxed: a number for people. Written by this thread alone.
    done_.store(latencies_.count(), std::memory_order_relaxed);
    return now_;
  }

  /// When something was last begun or recorded.
  [[nodiscard]] clock::time_point now() const noexcept { return now_; }
  [[nodiscard]] clock::time_point began() const noexcept { return began_; }
  [[nodiscard]] const histogram& latencies() const noexcept { return latencies_; }
  [[nodiscard]] std::uint64_t done() const noexcept {
    return done_.load(std::memory_order_relaxed);
  }
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

 private:
  histogram latencies_;
  std::uint64_t left_ = 0;
  clock::time_point deadline_{}, began_{}, now_{};
  std::atomic<std::uint64_t> done_{0};
};

}  // namespace perf
