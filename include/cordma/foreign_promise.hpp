#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/coro/frame_cache.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <thread>
#include <type_traits>
#include <utility>

namespace cordma {

/// Names the query by which an environment of P2300 gives its stop token, for a coroutine whose
/// promise has `get_env`. A program names its library's once, in a header:
///
///     template <class Env>
///       requires requires(const Env& env) { stdexec::get_stop_token(env); }
///     inline constexpr auto cordma::stop_token_query<Env> = stdexec::get_stop_token;
///
/// Without it an environment stops nothing. docs/coroutines.md has what a promise may give.
template <class Env>
inline constexpr auto stop_token_query = nullptr;

namespace detail {

/// Stands for the token of a promise that has none.
struct no_stop_token {};

template <class Promise>
auto stop_token_of(Promise& promise) {
  if constexpr (requires { promise.get_stop_token(); }) {
    return promise.get_stop_token();
  } else if constexpr (requires { promise.get_env(); }) {
    auto&& env = promise.get_env();
    constexpr auto query = stop_token_query<std::remove_cvref_t<decltype(env)>>;
    if constexpr (std::is_null_pointer_v<std::remove_cv_t<decltype(query)>>) {
      return no_stop_token{};
    } else {
      return query(env);
    }
  } else {
    return no_stop_token{};
  }
}

template <class Token, class F>
struct callback_of_token {
  using type = typename Token::template callback_type<F>;
};
template <class F>
struct callback_of_token<std::stop_token, F> {
  using type = std::stop_callback<F>;
};

/// Passes a stop of another library on to the scheduler's thread. \thread any; without a scheduler
/// the one that made it.
struct stop_request {
  scheduler* to;
  std::shared_ptr<stop_source> stopped;
  std::thread::id made_on = std::this_thread::get_id();
  void operator()() const {
    // The stop may end the wait, which owns this object.
    const std::shared_ptr<stop_source> source = stopped;
    if (to != nullptr) return to->post_stop(source);
    CORDMA_ASSERT(made_on == std::this_thread::get_id(),
                  "another thread stopped what was awaited outside of executor::run, and knows no "
                  "executor: docs/coroutines.md");
    source->request_stop();
  }
};

/// Awaits an operation for a coroutine of another library. Its stop becomes one of ours; the end of
/// an operation that was stopped becomes `unhandled_stopped`, if the promise has that.
template <class Op, class Promise>
class foreign_wait final : public foreign_outcome<std::remove_reference_t<Op>>,
                           public frame_cache::recycled,
                           private waiter {
  using token = decltype(stop_token_of(std::declval<Promise&>()));
  static constexpr bool has_token = !std::is_same_v<token, no_stop_token>;
  static constexpr bool takes_stop = requires(Promise& p) { p.unhandled_stopped(); };
  using value = value_of<Op>;

 public:
  foreign_wait(Op&& op, std::coroutine_handle<Promise> coroutine)
      : waiter{&on_end}, op_{std::forward<Op>(op)}, coroutine_{coroutine} {}

  /// Returns the coroutine to continue with.
  std::coroutine_handle<> start() {
    environment env = environment_of(coroutine_);
    if constexpr (has_token) follow(stop_token_of(coroutine_.promise()), env);
    return op_.start(*this, env) ? end() : std::noop_coroutine();
  }
  value take() override {
    if (thrown_) std::rethrow_exception(thrown_);
    return outcome_ ? std::move(*outcome_).value() : op_.take();
  }

 private:
  struct nothing {};
  template <class Token>
  struct callback {
    using type = typename callback_of_token<Token, stop_request>::type;
  };

  void follow(token stop, environment& env) {
    if (!stop.stop_possible()) return;
    source_ = std::allocate_shared<stop_source>(frame_cache::detail::allocator<stop_source>{});
    env.stop = stop_token{*source_};
    if (stop.stop_requested()) return source_->request_stop();
    scheduler* ends_on = env.scheduler != nullptr ? env.scheduler : own_scheduler_of(op_);
    if (ends_on == nullptr) ends_on = scheduler::of_this_thread();
    callback_.emplace(std::move(stop), stop_request{ends_on, source_});
  }
  static std::coroutine_handle<> on_end(waiter& self) noexcept {
    return static_cast<foreign_wait&>(self).end();
  }
  std::coroutine_handle<> end() noexcept {
    callback_.reset();  // Waits for a stop that another thread is passing on.
    if constexpr (takes_stop) {
      if (op_.failed() && was_stopped()) return coroutine_.promise().unhandled_stopped();
    }
    return coroutine_;
  }
  bool was_stopped() noexcept {
    try {
      outcome_.emplace(op_.take_result());
      return outcome_->is_cancelled();
    } catch (...) {
      thrown_ = std::current_exception();
      return false;
    }
  }

  Op op_;
  std::coroutine_handle<Promise> coroutine_;
  std::shared_ptr<stop_source> source_;
  std::optional<result<value>> outcome_;  // Set if the operation failed.
  std::exception_ptr thrown_;
  std::optional<
      typename std::conditional_t<has_token, callback<token>, std::type_identity<nothing>>::type>
      callback_;
};

}  // namespace detail
}  // namespace cordma
