#pragma once

#include <cordma/coro/task.hpp>

#include <exception>

namespace cordma {

/// Runs tasks side by side and waits for them: no task outlives its scope. The first error stops
/// the others, and `join` throws it. A task that ends with `cancelled` ended normally. A scope that
/// is destroyed destroys the tasks that still run, the newest first, where they are; `join`, or
/// `with_scope`, waits for them. No task destroys its own scope.
/// \thread the scheduler's.
/// \cost a spawn costs one frame, and no malloc once warm.
class scope {
 public:
  class join_op;

  explicit scope(cordma::scheduler& scheduler) noexcept
      : environment_{&scheduler, stop_token{stop_}} {}
  scope(scope&&) = delete;
  ~scope() {
    while (!tasks_.empty()) spawned::promise_type::destroy(tasks_.back());
  }

  /// Takes a task, or any operation. Spawned operations start in the scheduler's next iteration, in
  /// order.
  template <operation Op>
  void spawn(Op op) {
    run(*this, std::move(op));
  }
  /// Calls `f(arguments…)` in the scheduler's next iteration and runs what the call returns. The
  /// scope keeps `f` and copies of the arguments until the end. `f` may thus be a coroutine lambda
  /// with captures, which `spawn(f())` would leave dangling. `std::ref` passes references, as in
  /// std::thread.
  template <class F, class... Arguments>
    requires(!operation<F>) && requires(F& f, Arguments... arguments) {
      { f(std::move(arguments)...) } -> operation;
    }
  void spawn(F f, Arguments... arguments) {
    call(*this, std::move(f), std::move(arguments)...);
  }
  /// Asks all running tasks, and all that will be spawned, to stop.
  void request_stop() noexcept { stop_.request_stop(); }
  [[nodiscard]] stop_token token() noexcept { return stop_; }
  [[nodiscard]] std::size_t running() const noexcept { return running_; }
  /// Waits until nothing runs, then throws the first error, if any. A stop of the awaiting task is
  /// passed on to the running tasks, which `join` still waits for; `join` does not throw
  /// `cancelled`. The scope's scheduler resumes the task that joins.
  join_op join() noexcept;

 private:
  struct spawned;
  struct running_task : list_hook<running_task> {};
  struct spawned {
    class promise_type : public frame_cache::recycled, public waiter, public running_task {
     public:
      template <class... Kept>
      promise_type(scope& owner, Kept&...) noexcept : waiter{&enter}, scope_{owner} {
        ++scope_.running_;
        scope_.tasks_.push_back(*this);
      }
      static void destroy(running_task& self) noexcept {
        std::coroutine_handle<promise_type>::from_promise(static_cast<promise_type&>(self))
            .destroy();
      }
      spawned get_return_object() noexcept {
        scope_.environment_.scheduler->schedule(*this);
        return {};
      }
      std::suspend_always initial_suspend() const noexcept { return {}; }
      // The frame frees itself; the promise's destructor notifies the scope.
      std::suspend_never final_suspend() const noexcept { return {}; }
      ~promise_type() {
        running_task::unlink();
        scope_.one_ended();
      }
      void return_void() const noexcept {}
      void unhandled_exception() noexcept { scope_.one_failed(); }
      [[nodiscard]] const cordma::environment& environment() const noexcept {
        return scope_.environment_;
      }

     private:
      static std::coroutine_handle<> enter(waiter& self) noexcept {
        return std::coroutine_handle<promise_type>::from_promise(static_cast<promise_type&>(self));
      }
      scope& scope_;
    };
  };

  template <class Op>
  static spawned run(scope&, Op op) {
    static_cast<void>(co_await std::move(op));
  }

  template <class F, class... Arguments>
  static spawned call(scope&, F f, Arguments... arguments) {
    // One expression keeps temporaries of argument conversions alive.
    static_cast<void>(co_await f(std::move(arguments)...));
  }

  void one_failed() noexcept {
    try {
      throw;
    } catch (const cancelled&) {
      return;
    } catch (...) {
      if (!first_error_) first_error_ = std::current_exception();
    }
    request_stop();
  }
  void one_ended() noexcept;

  stop_source stop_;
  environment environment_;
  std::size_t running_ = 0;
  intrusive_list<running_task> tasks_;
  join_op* joiner_ = nullptr;
  std::exception_ptr first_error_;
};

class [[nodiscard]] scope::join_op : public operation_base<join_op>, private suspension {
 public:
  using value_type = void;

  join_op(join_op&&) noexcept = default;  // Moved only before it starts.
  ~join_op() {
    // The joining coroutine was destroyed: the scope must not wake it.
    if (is_waiting()) scope_.joiner_ = nullptr;
  }

  bool start(waiter& w, const environment& env) noexcept {
    const bool stopped = env.stop.stop_requested();
    if (stopped) scope_.request_stop();
    if (scope_.running_ == 0) return true;
    CORDMA_ASSERT(scope_.joiner_ == nullptr, "a scope is joined by one coroutine at a time");
    scope_.joiner_ = this;
    begin(w, {scope_.environment_.scheduler, stopped ? stop_token{} : env.stop});
    return false;
  }
  [[nodiscard]] cordma::scheduler* own_scheduler() const noexcept {
    return scope_.environment_.scheduler;
  }
  [[nodiscard]] bool failed() const noexcept { return scope_.first_error_ != nullptr; }
  void take() {
    if (failed()) std::rethrow_exception(std::exchange(scope_.first_error_, nullptr));
  }

 private:
  friend class scope;
  explicit join_op(scope& owner) noexcept : suspension{&pass_on}, scope_{owner} {}
  static void pass_on(stop_callback& self) noexcept {
    static_cast<join_op&>(self).scope_.request_stop();
  }

  scope& scope_;
};

inline void scope::one_ended() noexcept {
  if (--running_ == 0 && joiner_ != nullptr) std::exchange(joiner_, nullptr)->end();
}

inline scope::join_op scope::join() noexcept { return join_op{*this}; }

/// Runs `co_await body(scope)` as the first task of a new scope and joins it. The first error, of
/// the body or of a task, stops all the others and is thrown when they have ended. `cancelled` is
/// thrown when the caller was stopped.
///
/// The body may be a lambda with captures, which lives until the end. `scheduler` is the scheduler
/// of the tasks; null takes the awaiting coroutine's.
template <class Body>
task<> with_scope(Body body, cordma::scheduler* scheduler = nullptr) {
  const environment env = co_await current_environment();
  if (scheduler == nullptr) scheduler = env.scheduler;
  if (scheduler == nullptr)
    throw error{{.code = errc::no_scheduler,
                 .call = "with_scope",
                 .detail = "this coroutine's promise names none: with_scope(body, &executor)"}};
  scope inner{*scheduler};
  inner.spawn(body(inner));
  co_await inner.join();
  if (env.stop.stop_requested()) throw cancelled{};
}

}  // namespace cordma
