#pragma once

#include <cordma/base/time.hpp>

#include <chrono>
#include <cstdint>

namespace cordma {

/// Selects how completions are noticed.
enum class completion_mode {
  event,     ///< Sleep until the completion channel raises an event. No CPU when idle.
  busy,      ///< Poll in every event-loop iteration, never sleep. Lowest latency, a whole core.
  adaptive,  ///< Poll for at most `spin_max`, while that mostly saves a sleep; then sleep.
  /// Poll only when `poll()` is called. Connecting by rdma_cm, by information of the program's own,
  /// or with credentials takes messages: some task polls meanwhile.
  manual,
};

struct completion_queue_options {
  unsigned depth = 4096;  ///< CQEs: the sum of what its queue pairs can have outstanding.
  completion_mode mode = completion_mode::event;
  unsigned poll_batch = 32;  ///< CQEs that one poll takes; 1 to `poll_batch_max`.
  /// The longest spin of adaptive mode. Choose more than twice the time of a wake-up: with less,
  /// two ends that both sleep never find out that polling would do.
  time_span spin_max = std::chrono::microseconds{200};
  /// Groups what tasks await on one queue pair in one event-loop iteration: one doorbell, and for
  /// WRITEs, READs and atomics one CQE. A request before one of more than 4 KiB keeps its own CQE.
  /// The group is posted when it has sixteen requests or when the iteration's last task has
  /// continued. It is also posted when this or another queue pair posts something else. A request
  /// thus waits for the tasks that continue after it.
  /// False: each request is posted at once, as handles and receives are, and as all are in manual
  /// mode.
  bool doorbell_batching = true;
};

struct completion_counters {
  std::uint64_t polls = 0;
  std::uint64_t empty_polls = 0;
  std::uint64_t completions = 0;
  std::uint64_t wake_ups = 0;  ///< Times that the channel's descriptor became readable.
  std::uint64_t events = 0;    ///< Channel events read; all are acknowledged.
  std::uint64_t arms = 0;

  /// Mean number of CQEs that a poll took, over the polls that found any: 1 to `poll_batch`. The
  /// value is 0 when no poll found one.
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
