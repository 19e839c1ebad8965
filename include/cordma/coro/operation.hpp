#pragma once

#include <cordma/base/result.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/coro/waiter.hpp>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace cordma {

/// Something that can be started once, ends once, and then gives its outcome. Every awaitable of
/// cordma is one, so the combinators take them as they are, without a coroutine frame.
///
/// - `start(w, env)`: true when it has ended already (`w` is not told), else `w.done()` is called
///   exactly once, when it ends, and never before `start` has returned.
/// - `failed()`: once ended, whether `take` would throw.
/// - `take()`: once ended and at most once: the value, or throws `error` or `cancelled`.
/// - `take_result()`: the same without throwing (a task passes on exceptions that are not ours).
/// - `own_scheduler()`, if it has it: the one that it ends on, which may be null. A timeout of it
///   needs no other.
/// - Movable until started. Destroying it at any time only detaches: nothing is told any more.
template <class Op>
concept operation = requires(std::remove_reference_t<Op>& op, waiter& w, const environment& env) {
  typename std::remove_reference_t<Op>::value_type;
  { op.start(w, env) } -> std::same_as<bool>;
  { op.failed() } noexcept -> std::same_as<bool>;
  { op.take() } -> std::same_as<typename std::remove_reference_t<Op>::value_type>;
  { op.take_result() };
};

template <class Op>
using value_of = typename std::remove_reference_t<Op>::value_type;

/// The one that `op` knows; null: it knows none.
template <class Op>
scheduler* own_scheduler_of([[maybe_unused]] const Op& op) noexcept {
  if constexpr (requires {
                  { op.own_scheduler() } noexcept -> std::same_as<scheduler*>;
                }) {
    return op.own_scheduler();
  } else {
    return nullptr;
  }
}

/// Awaits an operation. Holds a reference: the operation is a temporary of the awaiting expression,
/// or a handle that outlives it.
template <class Op>
class [[nodiscard]] operation_awaiter {
 public:
  explicit operation_awaiter(Op& op) noexcept : op_{op} {}
  operation_awaiter(operation_awaiter&&) = delete;
  ~operation_awaiter() {
    if (waits_) std::destroy_at(&resumer_);
  }

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <class Promise>
  [[gnu::always_inline]] bool await_suspend(std::coroutine_handle<Promise> handle) {
    const environment& env = environment_of(handle);
    waiter& w = resumer_of(handle);
    if (op_.start(w, env)) return false;
    return env.scheduler == nullptr || !env.scheduler->try_complete_inline(w);
  }
  [[gnu::always_inline]] value_of<Op> await_resume() {
    const resumed it{waits_};
    return op_.take();
  }

 private:
  /// What resumed it has forgotten the resumer. Said last, right before the destructor asks, so
  /// that nothing is left of that.
  struct resumed {
    ~resumed() { waits = false; }
    bool& waits;
  };
  struct resumer : waiter {
    explicit resumer(std::coroutine_handle<> coroutine) noexcept
        : waiter{&resume}, handle{coroutine} {}
    static std::coroutine_handle<> resume(waiter& self) noexcept {
      return static_cast<resumer&>(self).handle;
    }
    std::coroutine_handle<> handle;
  };
  waiter& resumer_of(std::coroutine_handle<> handle) noexcept {
    waits_ = true;
    return *std::construct_at(&resumer_, handle);
  }

  Op& op_;
  bool waits_ = false;
  union {
    resumer resumer_;
  };
};

/// Gives `Op` its `co_await`.
template <class Op>
struct operation_base {
  operation_awaiter<Op> operator co_await() && noexcept {
    return operation_awaiter<Op>{static_cast<Op&>(*this)};
  }
  operation_awaiter<Op> operator co_await() & noexcept {
    return operation_awaiter<Op>{static_cast<Op&>(*this)};
  }
};

/// What a suspended operation keeps of whoever waits for it: the waiter, where to resume it, and
/// its place among those a stop would tell. For operations to inherit privately.
class suspension : public stop_callback {
 public:
  explicit suspension(function on_stop) noexcept : stop_callback{on_stop} {}

  /// `env.stop` must not have been requested.
  void begin(waiter& w, const environment& env) noexcept {
    waiter_.set(w);
    is_waiting_ = true;
    scheduler_ = env.scheduler;
    env.stop.register_callback(*this);
  }
  [[nodiscard]] bool is_waiting() const noexcept { return is_waiting_; }
  /// Forgets the waiter and hands it to its scheduler; without one it is resumed here and now, and
  /// may destroy what this operation belongs to: the caller must touch no member after.
  void end() noexcept {
    unlink();
    is_waiting_ = false;
    waiter* const w = waiter_.take();
    if (w == nullptr) return;
    if (scheduler_ != nullptr) {
      scheduler_->schedule(*w);
    } else {
      w->done().resume();
    }
  }
  /// The waiter is told nothing: for what outlives the operation, and may be another's.
  void forget() noexcept {
    unlink();
    is_waiting_ = false;
    static_cast<void>(waiter_.take());
  }

 private:
  waiter_ref waiter_;
  scheduler* scheduler_ = nullptr;
  bool is_waiting_ = false;
};

namespace detail {

/// What `op.take()` gives or throws, as a `result`; exceptions that are not ours pass.
template <class T, class Op>
result<T> taken(Op& op) {
  try {
    if constexpr (std::is_void_v<T>) {
      op.take();
      return {};
    } else {
      return op.take();
    }
  } catch (const error& e) {
    return e.failure();
  } catch (const cancelled&) {
    return cancelled_result;
  }
}

}  // namespace detail

/// `co_await as_result(op)` gives a `result` instead of throwing.
template <class Op>
class [[nodiscard]] as_result_op : public operation_base<as_result_op<Op>> {
 public:
  using value_type = result<value_of<Op>>;
  explicit as_result_op(Op&& op) : op_{std::forward<Op>(op)} {}

  bool start(waiter& w, const environment& env) { return op_.start(w, env); }
  [[nodiscard]] scheduler* own_scheduler() const noexcept { return own_scheduler_of(op_); }
  [[nodiscard]] bool failed() const noexcept { return false; }
  value_type take() { return op_.take_result(); }
  result<value_type> take_result() { return take(); }

 private:
  Op op_;
};

template <operation Op>
as_result_op<Op> as_result(Op&& op) {
  return as_result_op<Op>{std::forward<Op>(op)};
}

/// `co_await current_environment()`: the awaiting coroutine's scheduler and stop token.
class [[nodiscard]] environment_op : public operation_base<environment_op> {
 public:
  using value_type = environment;
  bool start(waiter&, const environment& env) noexcept {
    environment_ = env;
    return true;
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  environment take() noexcept { return environment_; }
  result<environment> take_result() noexcept { return environment_; }

 private:
  environment environment_;
};

inline environment_op current_environment() noexcept { return {}; }

}  // namespace cordma
