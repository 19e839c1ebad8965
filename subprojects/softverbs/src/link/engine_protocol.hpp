#pragma once

#include "wire/step.hpp"
#include "wire/time.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace softverbs {

/// After this many empty polls of a CQ without an arm, its poller takes the work over.
inline constexpr std::uint32_t busy_polls = bound(64, 3);
/// A poller yields its processor once in this many empty polls in a row.
inline constexpr std::uint32_t polls_per_yield = 256;
/// How often the engine checks whether pollers still poll. The period starts short, because many
/// programs poll for one completion and then wait for something else, and doubles up to the
/// maximum.
inline constexpr std::chrono::microseconds watch_period_first{25};
inline constexpr std::chrono::microseconds watch_period_max{1000};

/// The environment of the protocol: a node, or a simulated one.
class engine_world {
 public:
  /// Does all work that is ready; true if there was any. If another thread serves a link, the call
  /// waits for it (`wait`) or leaves that link to it.
  virtual bool work(bool wait) noexcept = 0;
  /// Switches the doorbells of peers on or off: for frames, and for space that a sender waits for.
  virtual void want_doorbells(bool wanted) noexcept = 0;
  /// Ends the engine's current wait(), or else its next one. \thread any.
  virtual void wake_engine() noexcept = 0;
  /// Waits for doorbells, sockets, deadlines and wake_engine(), and handles them. A negative limit
  /// means for ever.
  virtual void wait(std::chrono::nanoseconds limit) noexcept = 0;
  virtual void yield() noexcept = 0;
  [[nodiscard]] virtual clock::time_point now() noexcept = 0;

 protected:
  ~engine_world() = default;
};

/// Decides which thread does a node's work, the engine or the program's pollers, and which one is
/// notified of new work. The class knows no descriptor and no thread.
///
/// | state   | polled | asleep | doorbells | who does the work                            |
/// | ------- | ------ | ------ | --------- | -------------------------------------------- |
/// | running | no     | no     | as before | the engine; pollers help                     |
/// | asleep  | no     | yes    | on        | the notified thread: the engine, or a poller |
/// | polled  | yes    | no     | off       | pollers; the engine checks that they go on   |
///
/// | move              | by            | when                                                  |
/// | ----------------- | ------------- | ----------------------------------------------------- |
/// | running -> asleep | engine        | it found no work for a while; then it checks again    |
/// | asleep -> running | engine        | that check found work, or the wait has ended          |
/// | any -> polled     | a poller      | `busy_polls` empty polls without an arm               |
/// | polled -> asleep  | a poller      | it arms a queue: its thread is about to sleep         |
/// | polled -> running | engine        | no thread has polled for a watch period               |
///
/// One rule keeps work from being lost. Work is a frame in a ring, a due answer, a kick or a
/// deadline. A thread that leaves work behind stores it first, then calls notify(), which reads
/// `asleep_`. The engine stores `asleep_` first, then checks for work. Both are sequentially
/// consistent, so one of them sees the other. The peers' doorbells follow the same rule through the
/// rings' control words. Work on a link counts as left behind when its thread releases the link:
/// until then, other threads may have skipped the link.
class engine_protocol {
 public:
  explicit engine_protocol(engine_world& world) noexcept : world_{world} {}

  // ---- any thread
  [[nodiscard]] const step_atomic<bool>& polled() const noexcept { return polled_; }
  /// Call after work was left behind. Wakes the engine if it sleeps.
  void notify() noexcept {
    if (asleep_.load()) world_.wake_engine();
  }

  // ---- pollers
  /// Call when a poll found its queue empty; `empty_polls` counts the polls of that queue. Without
  /// work, the poller takes nothing over.
  void on_empty_poll(std::atomic<std::uint32_t>& empty_polls, bool has_work) noexcept;
  /// Call after the work of that poll. Yields now and then, so that a peer gets the processor.
  void after_empty_poll(std::atomic<std::uint32_t>& empty_polls, bool did_work) noexcept;
  /// Call when the thread is about to sleep: the engine does the work from now on.
  void on_arm(std::atomic<std::uint32_t>& empty_polls) noexcept;

  // ---- the engine
  void start() noexcept;
  /// Starts without an engine: the caller of the simulation does the work, and is always notified.
  void start_simulated() noexcept;
  /// Does the work until stop().
  void run() noexcept;
  void stop() noexcept;  ///< thread: any
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(); }

 private:
  void watch_pollers() noexcept;
  void sleep() noexcept;
  void take_over() noexcept;
  void give_back(bool engine_sleeps) noexcept;

  // Read by each poll; seldom written.
  step_atomic<bool> polled_{false};
  step_atomic<bool> polls_seen_{false};  ///< since the last check of the engine
  step_atomic<bool> asleep_{false};
  step_atomic<bool> watching_{false};  ///< the engine checks polled_ within watch_period_max
  modelled_atomic<bool> stopping_{false};
  engine_world& world_;

  step_mutex duty_;  ///< held while polled_ and the doorbells change
  // Used by the engine only.
  clock::time_point watch_until_{};
  std::chrono::nanoseconds watch_period_ = watch_period_first;
};

}  // namespace softverbs
