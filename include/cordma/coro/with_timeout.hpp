#pragma once

#include <cordma/coro/operation.hpp>

namespace cordma {

namespace detail {

template <class Op>
class [[nodiscard]] with_timeout_op : public operation_base<with_timeout_op<Op>>,
                                      private waiter,
                                      private timer,
                                      private stop_callback {
 public:
  using value_type = value_of<Op>;
  with_timeout_op(Op&& op, time_span limit, cordma::scheduler* scheduler)
      : waiter{&on_end},
        timer{&on_fire},
        stop_callback{&on_parent_stop},
        op_{std::forward<Op>(op)},
        limit_{limit},
        scheduler_{scheduler} {}
  with_timeout_op(with_timeout_op&& other) noexcept
      : with_timeout_op{std::forward<Op>(other.op_), other.limit_, other.scheduler_} {}

  bool start(waiter& w, const environment& env) {
    if (scheduler_ == nullptr) scheduler_ = env.scheduler;
    if (scheduler_ == nullptr) scheduler_ = own_scheduler_of(op_);
    if (scheduler_ == nullptr) return true;
    parent_.set(w);
    if (env.stop.stop_requested()) {
      stop_.request_stop();
    } else {
      env.stop.register_callback(*this);
      scheduler_->arm(*this, scheduler_->after(limit_));
    }
    if (!op_.start(*this, {scheduler_, stop_token{stop_}})) return false;
    leave();
    static_cast<void>(parent_.take());  // The waiter may go before this does.
    return true;
  }
  [[nodiscard]] cordma::scheduler* own_scheduler() const noexcept {
    return scheduler_ != nullptr ? scheduler_ : own_scheduler_of(op_);
  }
  [[nodiscard]] bool failed() const noexcept { return scheduler_ == nullptr || op_.failed(); }
  value_type take() {
    if (scheduler_ == nullptr) throw error{no_scheduler()};
    try {
      return op_.take();
    } catch (const cancelled&) {
      if (expired_) throw error{timed_out()};
      throw;
    }
  }
  result<value_type> take_result() {
    if (scheduler_ == nullptr) return no_scheduler();
    result<value_type> outcome = op_.take_result();
    if (expired_ && outcome.is_cancelled()) return timed_out();
    return outcome;
  }

 private:
  static failure no_scheduler() noexcept {
    return {.code = errc::no_scheduler,
            .call = "with_timeout",
            .detail =
                "neither this coroutine's promise nor the operation names one: "
                "with_timeout(op, limit, &executor)"};
  }
  static failure timed_out() noexcept { return {.code = errc::timed_out, .call = "with_timeout"}; }

  static void on_fire(timer& self) noexcept {
    auto& op = static_cast<with_timeout_op&>(self);
    op.expired_ = true;
    op.stop_.request_stop();
  }
  static void on_parent_stop(stop_callback& self) noexcept {
    auto& op = static_cast<with_timeout_op&>(self);
    op.disarm();
    op.stop_.request_stop();
  }
  static std::coroutine_handle<> on_end(waiter& self) noexcept {
    auto& op = static_cast<with_timeout_op&>(self);
    op.leave();
    return op.parent_.done();
  }
  void leave() noexcept {
    disarm();
    stop_callback::unlink();
  }

  Op op_;
  duration limit_;
  cordma::scheduler* scheduler_;
  waiter_ref parent_;
  bool expired_ = false;
  stop_source stop_;
};

}  // namespace detail

/// Runs an operation, asks it to stop when the time is up, and waits for its end. An operation that
/// ended by itself meanwhile keeps its own outcome.
/// \errors `errc::timed_out` when the stop is what ended it. \thread the scheduler's.
/// \cost one timer, O(log timers).
///
///     co_await with_timeout(conn.read(…), 50ms);
///
/// `scheduler` gives the clock; null takes the awaiting coroutine's. A coroutine of another library
/// may have none, and then the operation's own scheduler serves. A task knows none either, which
/// gives `errc::no_scheduler`.
template <operation Op>
detail::with_timeout_op<Op> with_timeout(Op&& op, time_span limit,
                                         cordma::scheduler* scheduler = nullptr) {
  return {std::forward<Op>(op), limit, scheduler};
}

}  // namespace cordma
