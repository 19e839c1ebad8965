#pragma once

#include "wire/step.hpp"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace softverbs {

using clock = std::chrono::steady_clock;

/// After so many empty polls of a CQ without an arm, its poller does the engine's work.
inline constexpr std::uint32_t busy_polls = bound(64, 3);
/// After so many more in a row it yields its processor each time.
inline constexpr std::uint32_t polls_per_yield = 256;
/// How often the engine checks whether pollers still poll: at first often, since many poll for one
/// completion and then wait for something else, then ever less.
inline constexpr std::chrono::microseconds watch_period_first{25};
inline constexpr std::chrono::microseconds watch_period_max{1000};

/// What the protocol needs of its surroundings: a node, or a simulated one.
class engine_world {
 public:
  /// Does what can be done now; true when that was anything. With `wait` it waits for threads that
  /// are at work on the same link; without, it leaves that link to them.
  virtual bool work(bool wait) noexcept = 0;
  /// Whether peers shall ring a doorbell for what they send, and for room that a sender waits for.
  virtual void want_doorbells(bool wanted) noexcept = 0;
  /// Ends the engine's wait under way, or else its next one. Thread: any.
  virtual void wake_engine() noexcept = 0;
  /// Waits for doorbells, sockets, deadlines and wake_engine(), and takes them. Negative: for ever.
  virtual void wait(std::chrono::nanoseconds limit) noexcept = 0;
  virtual void yield() noexcept = 0;
  [[nodiscard]] virtual clock::time_point now() noexcept = 0;

 protected:
  ~engine_world() = default;
};

/// Who does a node's work, its engine or the program's pollers, and who is told when there is some.
/// The class knows no descriptor and no thread.
///
/// | state   | polled | asleep | doorbells | who does the work                            |
/// | ------- | ------ | ------ | --------- | -------------------------------------------- |
/// | running | no     | no     | as before | the engine; pollers help                     |
/// | asleep  | no     | yes    | on        | whoever is told: the engine, or a poller     |
/// | polled  | yes    | no     | off       | pollers; the engine checks that they go on   |
///
/// | move              | who           | when                                                  |
/// | ----------------- | ------------- | ----------------------------------------------------- |
/// | running -> asleep | engine        | it found nothing for a while: then it looks once more |
/// | asleep -> running | engine        | that look found something, or its wait has ended      |
/// | any -> polled     | a poller      | `busy_polls` empty polls without an arm               |
/// | polled -> asleep  | a poller      | it arms a queue: its thread is about to sleep         |
/// | polled -> running | engine        | nobody has polled for a watch period                  |
///
/// No work is forgotten, by one rule. Whoever leaves work behind (a frame in a ring, an answer that
/// is due, a kick, a deadline) stores it first, then calls tell(), which looks whether the engine
/// sleeps. The engine first says that it sleeps, then looks at all that may have been left. Both
/// are sequentially consistent, so one of them sees the other. The peers' doorbells follow the same
/// rule through the rings' control words. What is left behind by a thread that holds a link counts
/// from when that thread let go of it: others may have passed the link by until then.
class engine_protocol {
 public:
  explicit engine_protocol(engine_world& world) noexcept : world_{world} {}

  // ---- any thread
  [[nodiscard]] const step_atomic<bool>& polled() const noexcept { return polled_; }
  /// Something was left behind: wakes the engine if it sleeps.
  void tell() noexcept {
    if (asleep_.load()) world_.wake_engine();
  }

  // ---- pollers
  /// A poll found its queue empty; `empty_polls` is the queue's count. With nothing to do there is
  /// nothing to take over.
  void on_empty_poll(std::atomic<std::uint32_t>& empty_polls, bool has_work) noexcept;
  /// After the work of that poll: whoever waits for a peer that has no processor makes room for it.
  void after_empty_poll(std::atomic<std::uint32_t>& empty_polls, bool did_work) noexcept;
  /// The thread is about to sleep: the engine does the work from now on.
  void on_arm(std::atomic<std::uint32_t>& empty_polls) noexcept;

  // ---- the engine
  void start() noexcept;
  /// Until stop().
  void run() noexcept;
  void stop() noexcept;  ///< any thread
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(); }

 private:
  void watch_pollers() noexcept;
  void sleep() noexcept;
  void take_over() noexcept;
  void give_back(bool engine_sleeps) noexcept;

  // What a poller looks at each time; seldom written.
  step_atomic<bool> polled_{false};
  step_atomic<bool> polls_seen_{false};  ///< since the engine last looked
  step_atomic<bool> asleep_{false};
  step_atomic<bool> watching_{false};  ///< it will look at polled_ within watch_period_max
  std::atomic<bool> stopping_{false};
  engine_world& world_;

  step_mutex duty_;  ///< changes of polled_, with the doorbells they need
  // The engine's.
  clock::time_point watch_until_{};
  std::chrono::nanoseconds watch_period_ = watch_period_first;
};

}  // namespace softverbs
