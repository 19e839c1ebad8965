#pragma once

#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/base/probe.hpp>
#include <cordma/detail/coro/waiter.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

namespace cordma {

using duration = std::chrono::steady_clock::duration;
using time_point = std::chrono::steady_clock::time_point;

/// A length of time in any unit. What is longer than the clock can count is as long as it can:
/// `std::chrono::milliseconds::max()` is for ever, not an overflow.
class time_span {
 public:
  constexpr time_span() noexcept = default;
  template <class Rep, class Period>
  constexpr time_span(std::chrono::duration<Rep, Period> length) noexcept  // NOLINT: the same.
      : length_{saturated(length)} {}
  constexpr operator duration() const noexcept { return length_; }  // NOLINT

 private:
  template <class Rep, class Period>
  static constexpr duration saturated(std::chrono::duration<Rep, Period> length) noexcept {
    constexpr double limit = 9.2e18;  // Of nanoseconds in 64 bits, and 292 years.
    static_assert(std::is_same_v<duration, std::chrono::nanoseconds>);
    const double about = std::chrono::duration<double, std::nano>{length}.count();
    if (about >= limit) return duration::max();
    if (about <= -limit) return duration::min();
    return std::chrono::duration_cast<duration>(length);
  }
  static constexpr duration saturated(duration length) noexcept { return length; }

  duration length_{};
};

/// `length` later; the end of time when the clock cannot count that far.
constexpr time_point after(time_point start, time_span span) noexcept {
  const duration length = span;
  return length > time_point::max() - start ? time_point::max() : start + length;
}

/// Where a scheduler reads the time: a seam, so that tests turn the clock by hand.
class CORDMA_EXPORT time_source {
 public:
  virtual ~time_source() = default;
  [[nodiscard]] virtual time_point now() const noexcept = 0;
  /// Now, to a tick of the kernel's (1 to 10 ms), mostly a little later: for what need not be
  /// exact, at a fraction of the cost.
  [[nodiscard]] virtual time_point about_now() const noexcept { return now(); }
  /// CLOCK_MONOTONIC, and CLOCK_MONOTONIC_COARSE (clock_gettime(2)).
  static const time_source& monotonic() noexcept;
};

/// A clock that moves only when told to.
class manual_clock final : public time_source {
 public:
  [[nodiscard]] time_point now() const noexcept override { return now_; }
  void advance(duration by) noexcept { now_ += by; }

 private:
  time_point now_{};
};

/// Calls a function at a time. In place; disarms itself when destroyed.
class CORDMA_EXPORT timer {
 public:
  using function = void (*)(timer&) noexcept;
  explicit timer(function on_fire) noexcept : on_fire_{on_fire} {}
  /// Only before it is armed: operations are moved only before they start.
  timer(timer&& other) noexcept;
  timer& operator=(timer&&) = delete;
  ~timer() { disarm(); }

  [[nodiscard]] bool is_armed() const noexcept { return home_ != nullptr; }
  inline void disarm() noexcept;

 private:
  friend class scheduler;
  [[nodiscard]] bool is_before(const timer& other) const noexcept {
    return deadline_ != other.deadline_ ? deadline_ < other.deadline_ : order_ < other.order_;
  }

  scheduler* home_ = nullptr;  // Null: not armed.
  // Its place in the home's heap.
  timer* before_ = nullptr;  // Whose `below_` or `beside_` it is.
  timer* below_ = nullptr;   // The first of those that come later.
  timer* beside_ = nullptr;
  time_point deadline_{};
  std::uint64_t order_ = 0;  // Equal deadlines fire in the order they were set.
  function on_fire_;
};

namespace detail {

/// Told when all that one call of `run_ready` resumes has gone on: a turn. In place.
class turn_end : public list_hook<turn_end> {
 protected:
  turn_end() noexcept = default;
  virtual ~turn_end() = default;

 private:
  friend class cordma::scheduler;
  virtual void on_turn_end() noexcept = 0;
};

}  // namespace detail

/// One thread's list of coroutines that can go on, and its timers. Knows no file descriptor; the
/// executor adds those. Must outlive what waits through it. \thread one. \cost `schedule` is four
/// stores; arming a timer is a compare and twice as many, and its end O(log timers) over many.
/// Neither allocates.
class CORDMA_EXPORT scheduler {
 public:
  explicit scheduler(const time_source& clock = time_source::monotonic()) noexcept
      : clock_{clock} {}
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;
  virtual ~scheduler();

  /// Puts `w` at the end of the ready list; it is resumed from `run_ready`, never from here.
  void schedule(waiter& w) noexcept { ready_.push_back(w); }
  /// Puts `w` behind all that the next call of `run_ready` resumes, or this one: for what nobody
  /// waits for.
  void schedule_last(waiter& w) noexcept { last_.push_back(w); }
  /// Of those that this call of `run_ready` resumes, whether any come after the one that runs.
  [[nodiscard]] bool others_follow() const noexcept { return others_follow_; }
  /// Whether a call of `run_ready` resumes something now.
  [[nodiscard]] bool is_in_turn() const noexcept { return is_in_turn_; }
  /// For the coroutine that runs, and that is about to suspend until `w` is told: polls inline what
  /// would be polled next, if nothing else is to be done in this call of `run_ready`. True: `w` was
  /// told meanwhile and waits for no turn, so the coroutine goes on without suspending.
  [[nodiscard]] bool try_complete_inline(waiter& w) noexcept {
    if (!is_alone_) return false;
    inline_polls_left_ -= polls_of_a_turn;
    for (bool goes_on = true; ready_.empty(); goes_on = poll_inline(), --inline_polls_left_)
      if (!goes_on || !is_alone_ || !last_.empty() || inline_polls_left_ < 0) return false;
    if (!w.list_hook<waiter>::is_linked() || !ready_.has_one()) return false;
    w.list_hook<waiter>::unlink();
    return true;
  }
  /// Others are to go on before the coroutine that runs polls inline.
  void forbid_inline_polls() noexcept { is_alone_ = false; }
  /// Tells `t` once, when that is over: only in a turn.
  void at_turn_end(detail::turn_end& t) noexcept {
    forbid_inline_polls();
    ends_.push_back(t);
  }
  [[nodiscard]] bool has_ready() const noexcept { return !ready_.empty() || !last_.empty(); }
  /// Resumes what is ready now; what that makes ready waits for the next call, so that one call is
  /// bounded and I/O gets its turn. Returns how many it resumed.
  std::size_t run_ready() noexcept {
    std::size_t resumed = 0;
    if (ready_.has_one()) {
      is_in_turn_ = true;
      is_alone_ = inline_polls_left_ >= 0 && last_.empty();
      resume(ready_.pop_front());
      is_alone_ = false;
      end_turn();
      resumed = 1;
    } else if (!ready_.empty()) {
      resumed = run(ready_);
    }
    return last_.empty() ? resumed : resumed + run_last();
  }
  /// Of those, only the ones of `schedule_last`.
  std::size_t run_last() noexcept { return run(last_); }

  void arm(timer& t, time_point deadline) noexcept;
  /// The same for one that may be armed here already.
  void rearm(timer& t, time_point deadline) noexcept;
  /// Of its timers; the end of time: it has none.
  [[nodiscard]] time_point next_deadline() const noexcept {
    return earliest_ == nullptr ? time_point::max() : earliest_->deadline_;
  }
  /// Fires the timers whose deadline has come. Returns how many.
  std::size_t fire_due() noexcept;
  [[nodiscard]] time_point now() const noexcept { return clock_.now(); }
  /// `length` from now; the end of time when the clock cannot count that far.
  [[nodiscard]] time_point after(time_span length) const noexcept {
    return cordma::after(now(), length);
  }
  /// The same for what only has to end some time: to a tick of the kernel's when it is
  /// `exact_below` or longer. \cost then 5 ns instead of 25.
  [[nodiscard]] time_point about_after(time_span span) const noexcept {
    const duration length = span;
    return length < exact_below ? after(length) : cordma::after(clock_.about_now(), length);
  }
  /// Whether `when` has come. \cost 25 ns only when it is nearer than `exact_below`.
  [[nodiscard]] bool is_past(time_point when) const noexcept {
    return clock_.about_now() >= when - exact_below && clock_.now() >= when;
  }
  static constexpr duration exact_below = std::chrono::seconds{1};

 protected:
  /// What `try_complete_inline` polls by. Whether to go on: it found something, or nobody sleeps.
  virtual bool poll_inline() noexcept { return false; }
  [[nodiscard]] bool has_inline_polls_left() const noexcept { return inline_polls_left_ >= 0; }
  /// Allows this many inline polls until the next call of `allow_inline_polls`.
  void allow_inline_polls(int polls) noexcept { inline_polls_left_ = polls; }

 private:
  friend class timer;
  static void resume(waiter& w) noexcept {
    CORDMA_PROBE1(resume, &w);
    w.done().resume();
  }
  std::size_t run(intrusive_list<waiter>& ready) noexcept;
  void end_turn() noexcept {
    is_in_turn_ = false;
    while (!ends_.empty()) ends_.pop_front().on_turn_end();
  }
  static timer& meld(timer& a, timer& b) noexcept;
  static timer* meld_all(timer* first) noexcept;
  void remove(timer& t) noexcept;

  const time_source& clock_;
  intrusive_list<waiter> ready_;
  intrusive_list<waiter> last_;
  intrusive_list<detail::turn_end> ends_;
  bool others_follow_ = false;
  bool is_in_turn_ = false;
  /// A turn takes as long as so many polls.
  static constexpr int polls_of_a_turn = 8;
  bool is_alone_ = false;  // The coroutine that runs may poll inline.
  int inline_polls_left_ = -1;
  timer* earliest_ = nullptr;  // Of a pairing heap; null: it is empty.
  std::uint64_t order_ = 0;
};

inline void timer::disarm() noexcept {
  if (home_ != nullptr) home_->remove(*this);
}

}  // namespace cordma
