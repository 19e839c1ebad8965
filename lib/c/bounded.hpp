#pragma once

#include <cordma/base/time.hpp>
#include <cordma/coro/operation.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/coro/stop.hpp>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

namespace cordma::c {

inline time_span span_of(std::int64_t timeout_us) noexcept {
  return timeout_us < 0 ? time_span{duration::max()}
                        : time_span{std::chrono::microseconds{timeout_us}};
}

/// Returns the nearest time that an option of the library takes.
inline time_span option_of(std::int64_t timeout_us) noexcept {
  constexpr time_span least = std::chrono::milliseconds{1}, most = std::chrono::hours{24};
  return std::clamp(span_of(timeout_us), least, most);
}

[[noreturn]] void throw_timed_out();

/// The part of `bounded` that knows no operation.
class bounded_base : public list_hook<bounded_base>, protected waiter, protected timer {
 public:
  using function = void (*)(void* of) noexcept;

  void request_stop() noexcept { stop_.request_stop(); }
  [[nodiscard]] bool has_expired() const noexcept { return has_expired_; }
  /// Arms the deadline, if there is one.
  void arm(scheduler& on) noexcept {
    if (timeout_us_ >= 0) on.arm(*this, on.about_after(span_of(timeout_us_)));
  }
  /// Calls `f(of)` at the end, instead of a waiter.
  void call_at_end(function f, void* of) noexcept {
    at_end_ = f;
    told_ = of;
  }

 protected:
  explicit bounded_base(std::int64_t timeout_us) noexcept
      : waiter{&on_end}, timer{&on_fire}, timeout_us_{timeout_us} {}
  ~bounded_base() = default;

  stop_source stop_;
  waiter_ref parent_;
  const std::int64_t timeout_us_;
  bool has_ended_ = false;
  bool has_expired_ = false;

 private:
  static void on_fire(timer& self) noexcept {
    auto& op = static_cast<bounded_base&>(self);
    op.has_expired_ = true;
    op.stop_.request_stop();
  }
  static std::coroutine_handle<> on_end(waiter& self) noexcept {
    auto& op = static_cast<bounded_base&>(self);
    op.has_ended_ = true;
    op.disarm();
    if (op.at_end_ == nullptr) return op.parent_.done();
    op.at_end_(op.told_);
    return std::noop_coroutine();
  }

  function at_end_ = nullptr;
  void* told_ = nullptr;
};

/// An operation with a deadline, whose timer is armed only once polling has not ended it.
template <class Op>
class bounded final : public bounded_base {
 public:
  using value_type = value_of<Op>;
  bounded(Op&& op, std::int64_t timeout_us) : bounded_base{timeout_us}, op_{std::move(op)} {}

  /// Starts the operation. Returns true if it has ended.
  bool begin(scheduler& on) {
    return has_ended_ = op_.start(*this, environment{&on, stop_token{stop_}});
  }
  [[nodiscard]] bool has_ended() const noexcept { return has_ended_; }
  /// Returns true if a poll has ended it, and takes it off the ready list.
  [[nodiscard]] bool take_ready() noexcept {
    if (!list_hook<waiter>::is_linked()) {
      if (timeout_us_ != 0) return false;
      has_expired_ = true;
      stop_.request_stop();
      if (!list_hook<waiter>::is_linked()) return false;  // Ends later, as a task may.
    }
    list_hook<waiter>::unlink();
    return has_ended_ = true;
  }
  /// Waits for the end, with the deadline.
  class rest_op;
  [[nodiscard]] rest_op rest(scheduler& on) noexcept { return rest_op{*this, on}; }

  /// Gives the value, or throws. \errors errc::timed_out; what the operation throws.
  value_type take() {
    if (!has_expired_) return op_.take();
    try {
      return op_.take();
    } catch (const cancelled&) {
      throw_timed_out();
    }
  }

 private:
  Op op_;
};

template <class Op>
class bounded<Op>::rest_op {
 public:
  using value_type = void;
  rest_op(bounded& of, scheduler& on) noexcept : op_{of}, on_{on} {}
  bool start(waiter& w, const environment&) noexcept {
    if (op_.has_ended_) return true;
    op_.parent_.set(w);
    if (!op_.has_expired_ && !op_.list_hook<waiter>::is_linked()) op_.arm(on_);
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  void take() noexcept {}
  result<void> take_result() noexcept { return {}; }

 private:
  bounded& op_;
  scheduler& on_;
};

}  // namespace cordma::c
