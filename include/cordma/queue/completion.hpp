#pragma once

#include <cordma/coro/scheduler.hpp>

#include <chrono>
#include <cstdint>

namespace cordma {

/// How completions are noticed.
enum class completion_mode {
  event,     ///< Sleep until the completion channel says so. No CPU when idle.
  busy,      ///< Look at every turn of the executor, never sleep. Lowest latency, a whole core.
  adaptive,  ///< Look on as long as that mostly saves a sleep, `spin_max` at most, then sleep.
  manual,    ///< Only when `poll()` is called.
};

struct completion_queue_options {
  unsigned depth = 4096;  ///< Entries: the sum of what the queue pairs on it can have outstanding.
  completion_mode mode = completion_mode::event;
  unsigned poll_batch = 32;  ///< Entries a poll takes; 1 to `poll_batch_max`.
  /// Adaptive: the longest look. More than twice what a wake-up takes, or two ends that both sleep
  /// never find out that they need not.
  time_span spin_max = std::chrono::microseconds{200};
  /// What tasks await in one turn of one queue pair goes with one doorbell, and WRITEs, READs and
  /// atomics with one completion entry, but for those before one of more than 4 KiB: when sixteen
  /// wait, the last task of the turn has gone on, or the queue pair, or another, posts something
  /// else. So one waits for those that go on after it. False: each goes at once, as handles and
  /// receives do, and as all do in manual mode.
  bool doorbell_batching = true;
};

struct completion_counters {
  std::uint64_t polls = 0;
  std::uint64_t empty_polls = 0;
  std::uint64_t completions = 0;
  std::uint64_t wake_ups = 0;  ///< Times the channel's descriptor became readable.
  std::uint64_t events = 0;    ///< Channel events read; all are acknowledged.
  std::uint64_t arms = 0;

  /// The mean number of entries that a poll took, over the polls that found any: 1 to `poll_batch`.
  /// 0 when no poll found one.
  [[nodiscard]] double completions_per_poll() const noexcept {
    return polls > empty_polls ? double(completions) / double(polls - empty_polls) : 0.;
  }
  completion_counters& operator+=(const completion_counters& other) noexcept {
    polls += other.polls;
    empty_polls += other.empty_polls;
    completions += other.completions;
    wake_ups += other.wake_ups;
    events += other.events;
    arms += other.arms;
    return *this;
  }
};

}  // namespace cordma
