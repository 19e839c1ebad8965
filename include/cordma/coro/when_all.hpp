#pragma once

#include <cordma/coro/operation.hpp>

#include <array>
#include <tuple>
#include <variant>

namespace cordma {

namespace detail {

/// Stands for `void` as a value in tuples and variants of outcomes.
template <class Op>
using value_or_monostate =
    std::conditional_t<std::is_void_v<value_of<Op>>, std::monostate, value_of<Op>>;

template <class Op>
value_or_monostate<Op> take_from(Op& op) {
  if constexpr (std::is_void_v<value_of<Op>>) {
    op.take();
    return {};
  } else {
    return op.take();
  }
}

/// Common part of `when_all` and `when_any`: it starts and counts the children, passes a stop on to
/// them, and remembers which came first. `Derived::child_ended(i)` decides whether to stop the
/// rest.
template <class Derived, class... Ops>
class combinator : public operation_base<Derived>, private stop_callback {
 public:
  bool start(waiter& w, const environment& env) {
    waiter_.set(w);
    // The count includes `start` itself: children may end while others have not started.
    pending_ = sizeof...(Ops) + 1;
    if (env.stop.stop_requested()) {
      stop_.request_stop();
    } else {
      env.stop.register_callback(*this);
    }
    cordma::scheduler* const scheduler = env.scheduler != nullptr ? env.scheduler : own_scheduler();
    [&]<std::size_t... I>(const environment& of_children, std::index_sequence<I...>) {
      (start_child<I>(of_children), ...);
    }({scheduler, stop_token{stop_}}, std::index_sequence_for<Ops...>{});
    if (--pending_ > 0) return false;
    unlink();
    static_cast<void>(waiter_.take());  // The waiter may go before this does.
    return true;
  }

  /// Returns the scheduler of the first child that names one; all children run on it.
  [[nodiscard]] cordma::scheduler* own_scheduler() const noexcept {
    cordma::scheduler* found = nullptr;
    std::apply([&](const auto&... op) { ((found = found ? found : own_scheduler_of(op)), ...); },
               ops_);
    return found;
  }

  combinator(combinator&& other) noexcept : stop_callback{&pass_on}, ops_{std::move(other.ops_)} {}

 protected:
  static constexpr std::size_t nobody = std::size_t(-1);
  explicit combinator(Ops&&... ops) : stop_callback{&pass_on}, ops_{std::forward<Ops>(ops)...} {}

  template <std::size_t I>
  auto& child() noexcept {
    return std::get<I>(ops_);
  }
  void stop_children() noexcept { stop_.request_stop(); }

  std::size_t first_ = nobody;  // Set by the derived class.

 private:
  struct slot : waiter {
    slot() noexcept : waiter{&ended} {}
    static std::coroutine_handle<> ended(waiter& self) noexcept {
      auto& s = static_cast<slot&>(self);
      return s.parent->one_ended(std::size_t(&s - s.parent->slots_.data()));
    }
    combinator* parent = nullptr;
  };

  static void pass_on(stop_callback& self) noexcept {
    static_cast<combinator&>(self).stop_.request_stop();
  }

  template <std::size_t I>
  void start_child(const environment& env) {
    slots_[I].parent = this;
    if (std::get<I>(ops_).start(slots_[I], env)) note_end(I);
  }

  void note_end(std::size_t i) noexcept {
    static constexpr auto failed_of = []<std::size_t... I>(std::index_sequence<I...>) {
      return std::array<bool (*)(const combinator&) noexcept, sizeof...(Ops)>{
          [](const combinator& self) noexcept { return std::get<I>(self.ops_).failed(); }...};
    }(std::index_sequence_for<Ops...>{});
    // The child stays pending until the others were asked to stop: the last child to end may
    // destroy this combinator.
    static_cast<Derived&>(*this).child_ended(i, failed_of[i](*this));
    --pending_;
  }
  std::coroutine_handle<> one_ended(std::size_t i) noexcept {
    note_end(i);
    if (pending_ > 0) return std::noop_coroutine();
    unlink();
    return waiter_.done();
  }

  waiter_ref waiter_;
  std::size_t pending_ = 0;
  // Declared first, because the operations refer to these two.
  stop_source stop_;
  std::array<slot, sizeof...(Ops)> slots_;
  std::tuple<Ops...> ops_;  // For an lvalue the type is a reference: handles are not taken over.
};

template <class... Ops>
class [[nodiscard]] when_all_op : public combinator<when_all_op<Ops...>, Ops...> {
  using base = combinator<when_all_op, Ops...>;

 public:
  using value_type = std::tuple<value_or_monostate<Ops>...>;

  explicit when_all_op(Ops&&... ops) : base{std::forward<Ops>(ops)...} {}

  [[nodiscard]] bool failed() const noexcept { return this->first_ != base::nobody; }
  value_type take() { return take_each(std::index_sequence_for<Ops...>{}); }

 private:
  friend base;
  void child_ended(std::size_t i, bool child_failed) noexcept {
    if (!child_failed || failed()) return;
    this->first_ = i;
    this->stop_children();
  }
  template <std::size_t... I>
  value_type take_each(std::index_sequence<I...>) {
    // The first failure is thrown; the values of the others stay where they are.
    if (failed()) ((this->first_ == I ? void(this->template child<I>().take()) : void()), ...);
    return value_type{take_from(this->template child<I>())...};
  }
};

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

/// Runs all of its operations and waits for all. Gives a tuple of their values (`std::monostate`
/// for void). The first failure stops the others; its error is thrown when all have ended.
/// Operations, tasks and handles need no coroutine frame; lvalues are taken by reference.
template <operation... Ops>
detail::when_all_op<Ops...> when_all(Ops&&... ops) {
  return detail::when_all_op<Ops...>{std::forward<Ops>(ops)...};
}

/// Waits for the first of its operations, stops the others and waits for those too. Gives a variant
/// whose `index()` names the first (`std::monostate` for void); throws if the first failed. The
/// outcome of a later operation is not taken: a receive among the losers loses no message.
template <operation... Ops>
detail::when_any_op<Ops...> when_any(Ops&&... ops) {
  return detail::when_any_op<Ops...>{std::forward<Ops>(ops)...};
}

}  // namespace cordma
