#pragma once

#include <cordma/base/result.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/coro/operation_base.hpp>
#include <cordma/detail/coro/waiter.hpp>

#include <concepts>
#include <type_traits>
#include <utility>

namespace cordma {

/// An operation can be started once, ends once, and then gives its outcome. Every awaitable of
/// cordma is one, so the combinators take it without a coroutine frame.
///
/// Required are the type `value_type` and four functions; `operation_base` adds `co_await`:
///
/// - `start(w, env)`: returns true if the operation has ended already; `w` is not notified then.
/// Otherwise `w.done()` is called exactly once, at the end, and never before `start` has returned.
/// - `failed()`: call it after the end; true if `take` would throw.
/// - `take()`: call it after the end, at most once; returns the value, or throws `error` or
/// `cancelled`.
/// - `take_result()`: `take` without throwing (a task passes on exceptions of other types). An
/// operation defines one of the two; `operation_base` adds the other.
///
/// Optional is one function. Completing inline needs none: see `scheduler::try_complete_inline`.
///
/// - `own_scheduler()`: the scheduler on which the operation ends; may be null. A timeout of the
/// operation needs no other scheduler. Without the function, null is assumed.
///
/// An operation that combinators take by value is movable until started. Destroying it at any time
/// only detaches it: the waiter is never notified.
template <class Op>
concept operation = requires(std::remove_reference_t<Op>& op, waiter& w, const environment& env) {
  typename std::remove_reference_t<Op>::value_type;
  { op.start(w, env) } -> std::same_as<bool>;
  { op.failed() } noexcept -> std::same_as<bool>;
  { op.take() } -> std::same_as<typename std::remove_reference_t<Op>::value_type>;
  { op.take_result() };
};

namespace detail {

template <class Op>
class [[nodiscard]] as_result_op : public operation_base<as_result_op<Op>> {
 public:
  using value_type = result<value_of<Op>>;
  explicit as_result_op(Op&& op) : op_{std::forward<Op>(op)} {}

  bool start(waiter& w, const environment& env) { return op_.start(w, env); }
  [[nodiscard]] scheduler* own_scheduler() const noexcept { return own_scheduler_of(op_); }
  [[nodiscard]] bool failed() const noexcept { return false; }
  value_type take() { return op_.take_result(); }

 private:
  Op op_;
};

class [[nodiscard]] environment_op : public operation_base<environment_op> {
 public:
  using value_type = environment;
  bool start(waiter&, const environment& env) noexcept {
    environment_ = env;
    return true;
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  environment take() noexcept { return environment_; }

 private:
  environment environment_;
};

}  // namespace detail

/// Awaits `op` and gives a `result` instead of throwing: `co_await as_result(op)`.
template <operation Op>
detail::as_result_op<Op> as_result(Op&& op) {
  return detail::as_result_op<Op>{std::forward<Op>(op)};
}

/// Gives the awaiting coroutine's scheduler and stop token: `co_await current_environment()`.
inline detail::environment_op current_environment() noexcept { return {}; }

}  // namespace cordma
