#pragma once

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace cordma {

template <class Signature>
class callback;

/// A program's function, as options keep it. Copies share the function; a default callback is
/// empty. It replaces `std::function`, whose header every program that includes cordma would
/// compile.
template <class R, class... Args>
class callback<R(Args...)> {
 public:
  callback() noexcept = default;
  callback(std::nullptr_t) noexcept {}  // NOLINT: null means empty.
  template <class F>
    requires(std::is_invocable_r_v<R, std::decay_t<F>&, Args...> &&
             !std::is_same_v<std::decay_t<F>, callback>)
  callback(F&& f)  // NOLINT: any function converts.
      : target_{std::make_shared<holder<std::decay_t<F>>>(std::forward<F>(f))} {}

  [[nodiscard]] explicit operator bool() const noexcept { return target_ != nullptr; }
  friend bool operator==(const callback& f, std::nullptr_t) noexcept { return !f; }
  R operator()(Args... args) const { return target_->call(std::forward<Args>(args)...); }

 private:
  struct target {
    virtual ~target() = default;
    virtual R call(Args... args) = 0;
  };
  template <class F>
  struct holder final : target {
    explicit holder(F&& function) : f{std::move(function)} {}
    explicit holder(const F& function) : f{function} {}
    R call(Args... args) override { return f(std::forward<Args>(args)...); }
    F f;
  };

  std::shared_ptr<target> target_;
};

}  // namespace cordma
