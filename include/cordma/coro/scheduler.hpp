#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/base/probe.hpp>
#include <cordma/detail/coro/waiter.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace cordma {

/// Source of a scheduler's time. Tests replace it to move the clock by hand.
class CORDMA_EXPORT time_source {
 public:
  virtual ~time_source() = default;
  [[nodiscard]] virtual time_point now() const noexcept = 0;
  /// Returns the time to a tick of the kernel's (1 to 10 ms), mostly a little late. Use it where
  /// the time need not be exact. \cost a fraction of `now`.
  [[nodiscard]] virtual time_point about_now() const noexcept { return now(); }
  /// Returns the system's clock: CLOCK_MONOTONIC, and CLOCK_MONOTONIC_COARSE (clock_gettime(2)).
  static const time_source& monotonic() noexcept;
};

/// A clock that moves only when the program moves it.
class manual_clock final : public time_source {
 public:
  [[nodiscard]] time_point now() const noexcept override { return now_; }
  void advance(duration by) noexcept { now_ += by; }

 private:
  time_point now_{};
};

/// Calls a function at a time. The timer is an intrusive object; its destructor disarms it.
class CORDMA_EXPORT timer {
 public:
  using function = void (*)(timer&) noexcept;
  explicit timer(function on_fire) noexcept : on_fire_{on_fire} {}
  /// Moves a timer that is not armed: operations are moved only before they start.
  timer(timer&& other) noexcept;
  timer& operator=(timer&&) = delete;
  ~timer() { disarm(); }

  [[nodiscard]] bool is_armed() const noexcept { return scheduler_ != nullptr; }
  inline void disarm() noexcept;

 private:
  friend class scheduler;
  [[nodiscard]] bool is_before(const timer& other) const noexcept {
    return deadline_ != other.deadline_ ? deadline_ < other.deadline_ : order_ < other.order_;
  }

  scheduler* scheduler_ = nullptr;  // Null while the timer is not armed.
  // The following members are the timer's place in the scheduler's heap.
  timer* before_ = nullptr;  // The timer whose `below_` or `beside_` is this one.
  timer* below_ = nullptr;   // First of the later timers.
  timer* beside_ = nullptr;
  time_point deadline_{};
  std::uint64_t order_ = 0;  // Equal deadlines fire in the order of arming.
  function on_fire_;
};

namespace detail {

/// Intrusive hook that is called at the end of an event-loop iteration: when all that one call of
/// `run_ready` resumes has continued.
class iteration_end_hook : public list_hook<iteration_end_hook> {
 protected:
  iteration_end_hook() noexcept = default;
  virtual ~iteration_end_hook() = default;

 private:
  friend class cordma::scheduler;
  virtual void on_iteration_end() noexcept = 0;
};

}  // namespace detail

/// One thread's list of ready coroutines, and its timers. The scheduler knows no file descriptor;
/// the executor adds those. It outlives what waits through it.
/// \thread one.
/// \cost `schedule` is four stores. Arming a timer is a compare and eight stores; its end is O(log
///   timers) amortised. Neither allocates.
class CORDMA_EXPORT scheduler {
 public:
  explicit scheduler(const time_source& clock = time_source::monotonic()) noexcept
      : clock_{clock} {}
  scheduler(scheduler&&) = delete;
  virtual ~scheduler();

  /// Appends `w` to the ready list; `run_ready` resumes it later.
  void schedule(waiter& w) noexcept { ready_.push_back(w); }
  /// Appends `w` behind all that the present or next call of `run_ready` resumes. Use it for work
  /// that nobody waits for.
  void schedule_last(waiter& w) noexcept {
    forbid_inline_completion();
    last_.push_back(w);
  }
  /// Returns true if this call of `run_ready` resumes more coroutines after the running one.
  [[nodiscard]] bool more_ready() const noexcept { return more_ready_; }
  /// Tries to complete inline what the running coroutine is about to wait for. Returns true if `w`
  /// was notified and nobody else is ready: the coroutine then continues without suspending.
  /// Nothing is tried if this call of `run_ready` has other work.
  [[nodiscard]] bool try_complete_inline(waiter& w) noexcept {
    if (!may_complete_inline_ || !complete_inline()) return false;
    if (!w.list_hook<waiter>::is_linked() || !ready_.has_one()) return false;
    w.list_hook<waiter>::unlink();
    return true;
  }
  /// Makes the running coroutine suspend when it waits next, because others continue first.
  void forbid_inline_completion() noexcept { may_complete_inline_ = false; }
  /// Calls `t` once, when this event-loop iteration ends. Call it only within one.
  void at_iteration_end(detail::iteration_end_hook& t) noexcept {
    forbid_inline_completion();
    ends_.push_back(t);
  }
  [[nodiscard]] bool has_ready() const noexcept { return !ready_.empty() || !last_.empty(); }
  /// Resumes what is ready now. Coroutines that become ready meanwhile wait for the next call, so
  /// that one call is bounded and I/O gets served. Returns the number resumed.
  std::size_t run_ready() noexcept {
    std::size_t resumed = 0;
    if (ready_.has_one()) {
      may_complete_inline_ = last_.empty();
      resume(ready_.pop_front());
      may_complete_inline_ = false;
      end_iteration();
      resumed = 1;
    } else if (!ready_.empty()) {
      resumed = run(ready_);
    }
    return last_.empty() ? resumed : resumed + run_last();
  }
  /// Resumes only what `schedule_last` appended.
  std::size_t run_last() noexcept { return run(last_); }

  void arm(timer& t, time_point deadline) noexcept;
  /// Arms a timer that may already be armed on this scheduler.
  void rearm(timer& t, time_point deadline) noexcept;
  /// Returns the earliest deadline of the timers; the end of time if there is none.
  [[nodiscard]] time_point next_deadline() const noexcept {
    return earliest_ == nullptr ? time_point::max() : earliest_->deadline_;
  }
  /// Fires the timers whose deadline has come. Returns how many.
  std::size_t fire_due() noexcept;
  [[nodiscard]] time_point now() const noexcept { return clock_.now(); }
  /// Returns the time `length` from now; the end of time when the clock cannot count that far.
  [[nodiscard]] time_point after(time_span length) const noexcept {
    return detail::after(now(), length);
  }
  /// Returns the time `span` from now, for an end that need not be exact. A span of `exact_below`
  /// or more is counted from a tick of the kernel's. \cost then 5 ns instead of 25.
  [[nodiscard]] time_point about_after(time_span span) const noexcept {
    const duration length = span;
    return length < exact_below ? after(length) : detail::after(clock_.about_now(), length);
  }
  /// Returns true if `when` has come. \cost 25 ns only when `when` is nearer than `exact_below`.
  [[nodiscard]] bool is_past(time_point when) const noexcept {
    return clock_.about_now() >= when - exact_below && clock_.now() >= when;
  }
  static constexpr duration exact_below = std::chrono::seconds{1};

  /// Requests a stop on this scheduler's thread. An executor does so in one of its next iterations,
  /// a plain scheduler, which no other thread can call, at once. \errors `std::bad_alloc`.
  /// \thread an executor's: any.
  virtual void post_stop(const std::shared_ptr<stop_source>& stopped) { stopped->request_stop(); }
  /// Returns the executor that this thread is running; null outside of `executor::run`.
  /// \thread any.
  [[nodiscard]] static scheduler* of_this_thread() noexcept;

 protected:
  /// Sets what `of_this_thread` returns. Returns what it was.
  static scheduler* run_on_this_thread(scheduler* next) noexcept;
  /// Hook of `try_complete_inline`. An executor overrides it to make progress, up to a limit of its
  /// own, while `may_complete_inline`. Returns false if the coroutine must suspend.
  virtual bool complete_inline() noexcept { return false; }
  /// Returns true while nothing is ready, and nobody waits for the end of this iteration.
  [[nodiscard]] bool may_complete_inline() const noexcept {
    return may_complete_inline_ && ready_.empty();
  }

 private:
  friend class timer;
  static void resume(waiter& w) noexcept {
    CORDMA_PROBE1(resume, &w);
    w.done().resume();
  }
  std::size_t run(intrusive_list<waiter>& ready) noexcept;
  void end_iteration() noexcept {
    while (!ends_.empty()) ends_.pop_front().on_iteration_end();
  }
  static timer& meld(timer& a, timer& b) noexcept;
  static timer* meld_all(timer* first) noexcept;
  void remove(timer& t) noexcept;

  const time_source& clock_;
  intrusive_list<waiter> ready_;
  intrusive_list<waiter> last_;
  intrusive_list<detail::iteration_end_hook> ends_;
  bool more_ready_ = false;
  bool may_complete_inline_ = false;  // The running coroutine is all of this iteration's work.
  timer* earliest_ = nullptr;         // Root of a pairing heap; null: the heap is empty.
  std::uint64_t order_ = 0;
};

inline void timer::disarm() noexcept {
  if (scheduler_ != nullptr) scheduler_->remove(*this);
}

}  // namespace cordma
