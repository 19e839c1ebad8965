#pragma once

#include <cordma/base/error.hpp>
#include <cordma/detail/base/assert.hpp>

#include <utility>
#include <variant>

namespace cordma {

namespace detail {
struct cancelled_t {};
}  // namespace detail

/// Makes a `result` that was stopped.
inline constexpr detail::cancelled_t cancelled_result{};

/// A value, a `failure`, or "stopped": `co_await as_result(op)` gives one without throwing.
/// `result<void>` holds no value. \cost nothing over the value until something fails.
template <class T>
class [[nodiscard]] result {
  using stored = std::conditional_t<std::is_void_v<T>, std::monostate, T>;

 public:
  using value_type = T;

  result()
    requires std::is_void_v<T>
      : state_{std::in_place_index<0>} {}
  template <class U = stored>
    requires(!std::is_void_v<T> && std::is_constructible_v<stored, U &&> &&
             !std::is_same_v<std::remove_cvref_t<U>, result> &&
             !std::is_same_v<std::remove_cvref_t<U>, struct failure>)
  result(U&& value) : state_{std::in_place_index<0>, std::forward<U>(value)} {}
  result(const struct failure& f) noexcept : state_{std::in_place_index<1>, f} {}
  result(detail::cancelled_t) noexcept : state_{std::in_place_index<2>} {}

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
  [[nodiscard]] explicit operator bool() const noexcept { return has_value(); }
  [[nodiscard]] bool is_cancelled() const noexcept { return state_.index() == 2; }
  [[nodiscard]] bool has_failure() const noexcept { return state_.index() == 1; }

  /// Returns the failure; call it only if `has_failure()`.
  [[nodiscard]] const struct failure& failure() const noexcept {
    CORDMA_ASSERT(has_failure(), "result holds no failure");
    return *std::get_if<1>(&state_);
  }

  /// Returns the value; throws `error` or `cancelled` when there is none.
  T value() && {
    check();
    if constexpr (!std::is_void_v<T>) return std::move(*std::get_if<0>(&state_));
  }
  [[nodiscard]] const stored& operator*() const& noexcept {
    CORDMA_ASSERT(has_value(), "result holds no value");
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] stored& operator*() & noexcept {
    CORDMA_ASSERT(has_value(), "result holds no value");
    return *std::get_if<0>(&state_);
  }
  [[nodiscard]] stored* operator->() noexcept { return &**this; }

 private:
  void check() const {
    if (has_failure()) detail::throw_error(failure());
    if (is_cancelled()) detail::throw_cancelled();
  }

  std::variant<stored, struct failure, detail::cancelled_t> state_;
};

}  // namespace cordma
