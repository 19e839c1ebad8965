#pragma once

#include <cordma/coro/operation.hpp>

namespace cordma {

namespace detail {

class [[nodiscard]] sleep_op : public operation_base<sleep_op>, private timer, private suspension {
 public:
  using value_type = void;
  /// `scheduler` gives the clock; null takes the awaiting coroutine's.
  sleep_op(time_span length, cordma::scheduler* scheduler) noexcept
      : timer{&on_fire}, suspension{&on_stop}, length_{length}, scheduler_{scheduler} {}
  sleep_op(time_point deadline, cordma::scheduler* scheduler) noexcept
      : timer{&on_fire}, suspension{&on_stop}, deadline_{deadline}, scheduler_{scheduler} {}

  bool start(waiter& w, const environment& env) {
    if (scheduler_ == nullptr) scheduler_ = env.scheduler;
    if (scheduler_ == nullptr) return end(outcome::no_scheduler);
    if (env.stop.stop_requested()) return end(outcome::stopped);
    scheduler_->arm(*this, deadline_ ? *deadline_ : scheduler_->after(length_));
    begin(w, {scheduler_, env.stop});
    return false;
  }
  [[nodiscard]] cordma::scheduler* own_scheduler() const noexcept { return scheduler_; }
  [[nodiscard]] bool failed() const noexcept { return outcome_ != outcome::slept; }
  result<void> take_result() noexcept {
    if (outcome_ == outcome::stopped) return cancelled_result;
    if (outcome_ == outcome::no_scheduler) {
      return failure{.code = errc::no_scheduler,
                     .call = "sleep",
                     .detail = "this coroutine's promise names none: use executor::sleep_for"};
    }
    return {};
  }

 private:
  enum class outcome : unsigned char { slept, stopped, no_scheduler };

  static void on_fire(timer& self) noexcept { static_cast<sleep_op&>(self).suspension::end(); }
  static void on_stop(stop_callback& callback) noexcept {
    auto& self = static_cast<sleep_op&>(callback);
    self.disarm();
    self.outcome_ = outcome::stopped;
    self.suspension::end();
  }
  bool end(outcome how) noexcept {
    outcome_ = how;
    return true;
  }

  duration length_{};
  std::optional<time_point> deadline_;
  outcome outcome_ = outcome::slept;
  cordma::scheduler* scheduler_;
};

}  // namespace detail

/// Waits for a length of time: `co_await sleep_for(10ms)`; `sleep_until` waits until a time.
/// \errors `cancelled` when a stop came first; `errc::no_scheduler` when the awaiting coroutine
///   (`environment`) names no scheduler. `executor::sleep_for` needs none.
/// \thread the scheduler's. \cost O(log timers), no system call of its own.
inline detail::sleep_op sleep_for(time_span length) noexcept { return {length, nullptr}; }
inline detail::sleep_op sleep_until(time_point deadline) noexcept { return {deadline, nullptr}; }

}  // namespace cordma
