#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/coro/frame_cache.hpp>

#include <exception>
#include <optional>

namespace cordma {

template <class T = void>
class task;

namespace detail {

class task_promise_base : public frame_cache::recycled {
 public:
  [[nodiscard]] std::suspend_always initial_suspend() const noexcept { return {}; }
  auto final_suspend() noexcept {
    struct ending {
      bool await_ready() const noexcept { return false; }
      void await_resume() const noexcept {}
      std::coroutine_handle<> await_suspend(std::coroutine_handle<> /*this frame*/) const noexcept {
        // Continuation and waiter are null when the task ended inside `start`, whose result says
        // so.
        return promise_.continuation_ ? promise_.continuation_ : promise_.waiter_.done();
      }
      task_promise_base& promise_;
    };
    return ending{*this};
  }
  void unhandled_exception() noexcept { exception_ = std::current_exception(); }
  [[nodiscard]] const cordma::environment& environment() const noexcept { return environment_; }

 protected:
  template <class>
  friend class cordma::task;

  void rethrow() {
    if (exception_) std::rethrow_exception(std::exchange(exception_, nullptr));
  }

  cordma::environment environment_;
  std::coroutine_handle<> continuation_;  // Set when a coroutine awaits the task.
  waiter_ref waiter_;                     // Set when a combinator started the task.
  bool is_awaited_ = false;
  std::exception_ptr exception_;
};

template <class T>
class task_promise final : public task_promise_base {
 public:
  task<T> get_return_object() noexcept;
  template <class U = T>
    requires std::constructible_from<T, U&&>
  void return_value(U&& value) {
    value_.emplace(std::forward<U>(value));
  }
  T take() {
    rethrow();
    return std::move(*value_);
  }

 private:
  std::optional<T> value_;
};

template <>
class task_promise<void> final : public task_promise_base {
 public:
  task<void> get_return_object() noexcept;
  void return_void() const noexcept {}
  void take() { rethrow(); }
};

}  // namespace detail

/// A coroutine that starts when it is awaited and belongs to its holder. A task is move-only. It
/// inherits the stop token and the scheduler of the coroutine that awaits it. Destroying it
/// destroys the frame; operations in it are detached, never cancelled under the device.
/// \thread that of its scheduler.
/// \cost one frame from the thread's `frame_cache`, no malloc once warm. Awaiting is a symmetric
///   transfer, so a loop over tasks that end inline does not grow the stack.
template <class T>
class [[nodiscard]] task {
 public:
  using promise_type = detail::task_promise<T>;
  using value_type = T;

  task(task&& other) noexcept : frame_{std::exchange(other.frame_, nullptr)} {}
  task& operator=(task&& other) noexcept {
    task taken{std::move(other)};
    std::swap(frame_, taken.frame_);
    return *this;
  }
  ~task() {
    if (frame_) frame_.destroy();
  }

  class awaiter;
  awaiter operator co_await() && noexcept {
    mark_awaited();
    return awaiter{frame_};
  }

  // The following functions make a task an `operation`, for the combinators.
  bool start(waiter& w, const environment& env) noexcept {
    mark_awaited();
    return started{frame_}.start(w, env);
  }
  [[nodiscard]] bool failed() const noexcept { return started{frame_}.failed(); }
  T take() { return frame_.promise().take(); }
  result<T> take_result() { return detail::taken<T>(*this); }

 private:
  class started;
  friend promise_type;
  explicit task(std::coroutine_handle<promise_type> frame) noexcept : frame_{frame} {}
  void mark_awaited() const noexcept {
    CORDMA_ASSERT(frame_ != nullptr, "the task was moved away");
    CORDMA_ASSERT(!std::exchange(frame_.promise().is_awaited_, true), "a task is awaited once");
  }

  std::coroutine_handle<promise_type> frame_;
};

/// The operation that a task is, without the task: its holder may move it while it runs.
template <class T>
class task<T>::started {
 public:
  using value_type = T;
  explicit started(std::coroutine_handle<promise_type> frame) noexcept : frame_{frame} {}
  bool start(waiter& w, const environment& env) const noexcept {
    frame_.promise().environment_ = env;
    if (env.scheduler != nullptr) env.scheduler->forbid_inline_completion();
    frame_.resume();
    // The waiter is set only after the resume. A task that ends inline must not resume its parent
    // on top of this call, or a loop of such tasks would grow the stack.
    if (frame_.done()) return true;
    frame_.promise().waiter_.set(w);
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return frame_.promise().exception_ != nullptr; }
  T take() { return frame_.promise().take(); }
  result<T> take_result() { return detail::taken<T>(*this); }

 private:
  std::coroutine_handle<promise_type> frame_;
};

template <class T>
class [[nodiscard]] task<T>::awaiter {
 public:
  awaiter(awaiter&&) = delete;
  // The awaiting coroutine may be destroyed before the task is.
  ~awaiter() {
    frame_.promise().continuation_ = nullptr;
    delete foreign_;
  }
  [[nodiscard]] bool await_ready() const noexcept { return false; }
  template <class Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> parent) noexcept {
    frame_.promise().environment_ = environment_of(parent);
    frame_.promise().continuation_ = parent;
    return frame_;
  }
  template <detail::foreign_promise Promise>
  std::coroutine_handle<> await_suspend(std::coroutine_handle<Promise> parent) {
    auto* const wait = new detail::foreign_wait<started, Promise>{started{frame_}, parent};
    foreign_ = wait;
    return wait->start();
  }
  T await_resume() { return foreign_ == nullptr ? frame_.promise().take() : foreign_->take(); }

 private:
  friend class task;
  explicit awaiter(std::coroutine_handle<promise_type> frame) noexcept : frame_{frame} {}
  std::coroutine_handle<promise_type> frame_;
  detail::foreign_outcome<started>* foreign_ = nullptr;
};

template <class T>
task<T> detail::task_promise<T>::get_return_object() noexcept {
  return task<T>{std::coroutine_handle<task_promise>::from_promise(*this)};
}

inline task<void> detail::task_promise<void>::get_return_object() noexcept {
  return task<void>{std::coroutine_handle<task_promise>::from_promise(*this)};
}

}  // namespace cordma
