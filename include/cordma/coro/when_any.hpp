#pragma once

#include <cordma/coro/when_all.hpp>

namespace cordma {

namespace detail {

template <class... Ops>
class [[nodiscard]] when_any_op : public combinator<when_any_op<Ops...>, Ops...> {
  using base = combinator<when_any_op, Ops...>;
  static_assert(sizeof...(Ops) > 0, "nothing would ever be first");

 public:
  using value_type = std::variant<value_or_monostate<Ops>...>;

  explicit when_any_op(Ops&&... ops) : base{std::forward<Ops>(ops)...} {}

  [[nodiscard]] bool failed() const noexcept { return first_failed_; }
  value_type take() { return take_first<0>(); }

 private:
  friend base;
  void child_ended(std::size_t i, bool child_failed) noexcept {
    if (this->first_ != base::nobody) return;
    this->first_ = i;
    first_failed_ = child_failed;
    this->stop_children();
  }
  template <std::size_t I>
  value_type take_first() {
    if constexpr (I + 1 < sizeof...(Ops)) {
      if (this->first_ != I) return take_first<I + 1>();
    }
    return value_type{std::in_place_index<I>, take_from(this->template child<I>())};
  }

  bool first_failed_ = false;
};

}  // namespace detail

/// Waits for the first of its operations, stops the others and waits for those too. Gives a variant
/// whose `index()` names the first (`std::monostate` for void); throws if the first failed. The
/// outcome of a later operation is not taken: a receive among the losers loses no message.
template <operation... Ops>
detail::when_any_op<Ops...> when_any(Ops&&... ops) {
  return detail::when_any_op<Ops...>{std::forward<Ops>(ops)...};
}

}  // namespace cordma
