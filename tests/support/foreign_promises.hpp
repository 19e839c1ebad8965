#pragma once

#include "support/foreign_task.hpp"

#include <cordma/foreign_promise.hpp>

#include <coroutine>
#include <exception>
#include <stop_token>
#include <type_traits>
#include <utility>

// Coroutines of three other libraries. Each starts at once, and its holder destroys it.
namespace support {

/// The query by which a library of P2300's kind names the stop token of an environment.
struct get_stop_token_t {
  template <class Env>
  auto operator()(const Env& env) const noexcept -> decltype(env.query(*this)) {
    return env.query(*this);
  }
};
inline constexpr get_stop_token_t get_stop_token{};

/// A token that is not the standard library's, but has what P2300 asks of one.
class other_stop_token {
 public:
  template <class F>
  using callback_type = std::stop_callback<F>;
  other_stop_token(std::stop_token token) noexcept : token_{std::move(token)} {}  // NOLINT
  [[nodiscard]] bool stop_possible() const noexcept { return token_.stop_possible(); }
  [[nodiscard]] bool stop_requested() const noexcept { return token_.stop_requested(); }
  operator std::stop_token() && noexcept { return std::move(token_); }  // NOLINT

 private:
  std::stop_token token_;
};

struct other_env {
  std::stop_token token;
  [[nodiscard]] other_stop_token query(get_stop_token_t) const noexcept { return token; }
};

/// How a coroutine ended: by itself, by an exception, or without ever going on after a stop.
enum class end { none, returned, threw, stopped };

template <class Gives>
class foreign {
 public:
  struct promise_type : Gives {
    template <class... Args>
    explicit promise_type(std::stop_token token, Args&...) : Gives{std::move(token)} {}
    template <class Lambda, class... Args>
    promise_type(Lambda&, std::stop_token token, Args&...) : Gives{std::move(token)} {}
    foreign get_return_object() noexcept {
      return foreign{std::coroutine_handle<promise_type>::from_promise(*this)};
    }
    std::suspend_never initial_suspend() const noexcept { return {}; }
    std::suspend_always final_suspend() const noexcept { return {}; }
    void return_void() noexcept { this->ended = end::returned; }
    void unhandled_exception() noexcept {
      this->ended = end::threw;
      thrown = std::current_exception();
    }
    std::exception_ptr thrown;
  };

  foreign(foreign&& other) noexcept : frame_{std::exchange(other.frame_, nullptr)} {}
  foreign& operator=(foreign&& other) noexcept {
    std::swap(frame_, other.frame_);
    return *this;
  }
  ~foreign() {
    if (frame_) frame_.destroy();
  }
  [[nodiscard]] end ended() const noexcept { return frame_.promise().ended; }
  [[nodiscard]] bool done() const noexcept { return ended() != end::none; }
  void rethrow() const {
    if (frame_.promise().thrown) std::rethrow_exception(frame_.promise().thrown);
  }

 private:
  explicit foreign(std::coroutine_handle<promise_type> frame) noexcept : frame_{frame} {}
  std::coroutine_handle<promise_type> frame_;
};

struct gives_nothing {
  static constexpr bool is_stoppable = false;
  explicit gives_nothing(std::stop_token /*token*/) noexcept {}
  end ended = end::none;
};

struct gives_std_token {
  static constexpr bool is_stoppable = true;
  static constexpr end on_stop = end::threw;
  explicit gives_std_token(std::stop_token token) noexcept : token_{std::move(token)} {}
  [[nodiscard]] std::stop_token get_stop_token() const noexcept { return token_; }
  end ended = end::none;

 private:
  std::stop_token token_;
};

struct gives_environment {
  static constexpr bool is_stoppable = true;
  static constexpr end on_stop = end::stopped;
  explicit gives_environment(std::stop_token token) noexcept : env_{std::move(token)} {}
  [[nodiscard]] const other_env& get_env() const noexcept { return env_; }
  std::coroutine_handle<> unhandled_stopped() noexcept {
    ended = end::stopped;
    return std::noop_coroutine();
  }
  end ended = end::none;

 private:
  other_env env_;
};

}  // namespace support

template <>
inline constexpr auto cordma::stop_token_query<support::other_env> = support::get_stop_token;
