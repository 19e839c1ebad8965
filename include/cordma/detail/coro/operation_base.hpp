#pragma once

#include <cordma/base/result.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/coro/waiter.hpp>

#include <concepts>
#include <coroutine>
#include <memory>
#include <type_traits>
#include <utility>

namespace cordma {

template <class Op>
using value_of = typename std::remove_reference_t<Op>::value_type;

/// Returns the scheduler that `op` knows; null if it knows none.
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

namespace detail {

/// A promise of another library that gives its stop by a token of its own, or takes a stop by
/// another way than an exception. foreign_promise.hpp serves it.
template <class Promise>
concept foreign_promise = requires(Promise& p) { p.get_stop_token(); } || requires(Promise& p) {
  p.get_env();
} || requires(Promise& p) { p.unhandled_stopped(); };

/// The wait of such a coroutine, which gives what the operation gives.
template <class Op>
class foreign_outcome {
 public:
  virtual ~foreign_outcome() = default;
  virtual value_of<Op> take() = 0;
};

template <class Op, class Promise>
class foreign_wait;

}  // namespace detail

/// Awaits an operation through a reference: the operation is a temporary of the awaiting
/// expression, or a handle that outlives the awaiter.
template <class Op>
class [[nodiscard]] operation_awaiter {
 public:
  explicit operation_awaiter(Op& op) noexcept : op_{op} {}
  operation_awaiter(operation_awaiter&&) = delete;
  ~operation_awaiter() {
    if (waits_ == wait::own) std::destroy_at(&resumer_);
    if (waits_ == wait::foreign) delete foreign_;
  }

  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <class Promise>
  [[gnu::always_inline]] bool await_suspend(std::coroutine_handle<Promise> handle) {
    const environment& env = environment_of(handle);
    waiter& w = resumer_of(handle);
    if (op_.start(w, env)) return false;
    return env.scheduler == nullptr || !env.scheduler->try_complete_inline(w);
  }
  template <detail::foreign_promise Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> handle) {
    auto* const started = new detail::foreign_wait<Op&, Promise>{op_, handle};
    foreign_ = started;
    waits_ = wait::foreign;
    return started->start();
  }
  [[gnu::always_inline]] value_of<Op> await_resume() {
    if (waits_ == wait::foreign) [[unlikely]]
      return foreign_->take();
    const resumed it{waits_};
    return op_.take();
  }

 private:
  enum class wait : unsigned char { none, own, foreign };
  /// Notes that the resumer is unlinked, because it has resumed the coroutine. The note is written
  /// last, right before the destructor reads it, so the compiler removes both.
  struct resumed {
    ~resumed() { waits = wait::none; }
    wait& waits;
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
    waits_ = wait::own;
    return *std::construct_at(&resumer_, handle);
  }

  Op& op_;
  wait waits_ = wait::none;
  union {
    resumer resumer_;
    detail::foreign_outcome<Op>* foreign_;
  };
};

namespace detail {

/// Returns what `op.take()` gives or throws, as a `result`; exceptions of other types pass.
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

/// Gives `Op` its `co_await`, and the one of `take` and `take_result` that `Op` does not define.
template <class Op>
struct operation_base {
  auto take() { return static_cast<Op&>(*this).take_result().value(); }
  auto take_result() { return detail::taken<value_of<Op>>(static_cast<Op&>(*this)); }
  operation_awaiter<Op> operator co_await() noexcept {
    return operation_awaiter<Op>{static_cast<Op&>(*this)};
  }
};

/// State of a suspended operation: its waiter, the scheduler that resumes it, and its place in the
/// list of stop callbacks. Operations inherit it privately.
class suspension : public stop_callback {
 public:
  explicit suspension(function on_stop) noexcept : stop_callback{on_stop} {}

  /// Begins a wait. `env.stop` must not have been requested.
  void begin(waiter& w, const environment& env) noexcept {
    waiter_.set(w);
    is_waiting_ = true;
    scheduler_ = env.scheduler;
    env.stop.register_callback(*this);
  }
  [[nodiscard]] bool is_waiting() const noexcept { return is_waiting_; }
  /// Forgets the waiter and hands it to its scheduler. Without a scheduler the waiter is resumed
  /// inline and may destroy the operation's owner: the caller must touch no member afterwards.
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
  /// Ends the wait without a notification: the waiter outlives the operation, and may serve
  /// another.
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

}  // namespace cordma
