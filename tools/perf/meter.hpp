#pragma once

#include "histogram.hpp"
#include "pace.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <limits>
#include <optional>

namespace perf {

using clock = std::chrono::steady_clock;

/// How one thread's operations are counted and timed, whoever does them: it says how long it goes
/// on. In a closed loop the clock is read once an operation: when one ends, the next one of the
/// same worker begins. In an open loop an operation begins when it is due, and the latency counts
/// from then, so a stall counts for all that waited.
/// \thread one; `done` and `latencies().snapshot()` any.
template <class Clock>
class basic_meter {
 public:
  using time_point = clock::time_point;
  static constexpr std::uint64_t unlimited = std::numeric_limits<std::uint64_t>::max();

  struct limits {
    std::uint64_t operations = unlimited;
    std::chrono::nanoseconds longest = std::chrono::nanoseconds::max();
    std::optional<pace_options> pace{};             ///< Unset: a closed loop.
    const std::atomic<bool>* is_stopped = nullptr;  ///< Ends the loop early.
  };

  void begin(const limits& until) {
    latencies_.clear();
    lateness_.clear();
    done_.store(0, std::memory_order_relaxed);
    left_ = until.operations;
    is_stopped_ = until.is_stopped;
    began_ = now_ = Clock::now();
    deadline_ =
        until.longest < time_point::max() - began_ ? began_ + until.longest : time_point::max();
    pace_.reset();
    if (until.pace) pace_.emplace(*until.pace, began_);
  }
  /// Allows `operations` from now on, or as many as begin within `longest`.
  void begin(std::uint64_t operations,
             std::chrono::nanoseconds longest = std::chrono::nanoseconds::max()) {
    begin(limits{.operations = operations, .longest = longest});
  }
  /// Tells whether one more operation is to be done, which the caller then does.
  [[nodiscard]] bool takes_another() noexcept {
    if (left_ == 0 || now_ >= deadline_ || was_stopped()) return false;
    --left_;
    return true;
  }
  /// Does the same. In an open loop `start` becomes the time at which the operation is due.
  [[nodiscard]] bool takes_another(time_point& start) noexcept {
    if (!pace_) return takes_another();
    if (left_ == 0 || was_stopped() || pace_->next() >= deadline_) return false;
    if (Clock::now() >= deadline_) return false;
    start = pace_->next();
    pace_->advance();
    --left_;
    return true;
  }
  /// Tells whether the caller has to wait until `next_wake` before it asks again.
  [[nodiscard]] bool is_early(time_point start) noexcept {
    return pace_ && !was_stopped() && Clock::now() < start;
  }
  /// Returns the time until which a worker waits: `start`, or sooner to notice a stop.
  [[nodiscard]] time_point next_wake(time_point start) const noexcept {
    return is_stopped_ == nullptr ? start : std::min(start, Clock::now() + stop_check);
  }
  /// Notes that the operation of `start` begins now. False: a stop came before its time.
  [[nodiscard]] bool begins(time_point start) noexcept {
    if (!pace_) return true;
    const time_point now = Clock::now();
    if (now < start) return false;
    lateness_.add(now - start);
    return true;
  }
  /// Notes that an operation that began, or was due, at `start` has ended now. Gives the time.
  time_point record(time_point start) noexcept {
    now_ = Clock::now();
    latencies_.add(now_ - start);
    // Relaxed: a number for people. Written by this thread alone.
    done_.store(latencies_.count(), std::memory_order_relaxed);
    return now_;
  }

  /// When something was last begun or recorded.
  [[nodiscard]] time_point now() const noexcept { return now_; }
  [[nodiscard]] time_point began() const noexcept { return began_; }
  [[nodiscard]] const histogram& latencies() const noexcept { return latencies_; }
  /// How much later than due operations of an open loop began.
  [[nodiscard]] const histogram& lateness() const noexcept { return lateness_; }
  /// Operations of an open loop that were due before the end, and never began.
  [[nodiscard]] std::uint64_t missed() const noexcept {
    return pace_ && deadline_ != time_point::max() ? pace_->due_before(deadline_) : 0;
  }
  /// Tells whether all operations of an open loop that began have ended, and none is due yet.
  [[nodiscard]] bool is_idle() const noexcept {
    return pace_ && lateness_.count() == latencies_.count();
  }
  [[nodiscard]] std::uint64_t done() const noexcept {
    return done_.load(std::memory_order_relaxed);
  }

 private:
  static constexpr std::chrono::milliseconds stop_check{100};

  /// The first stop that is noticed is the end.
  bool was_stopped() noexcept {
    if (is_stopped_ == nullptr || !is_stopped_->load(std::memory_order_relaxed)) return false;
    deadline_ = std::min(deadline_, Clock::now());
    return true;
  }

  histogram latencies_, lateness_;
  std::uint64_t left_ = 0;
  time_point deadline_{}, began_{}, now_{};
  std::optional<pace> pace_;
  const std::atomic<bool>* is_stopped_ = nullptr;
  std::atomic<std::uint64_t> done_{0};
};

using meter = basic_meter<clock>;

}  // namespace perf
