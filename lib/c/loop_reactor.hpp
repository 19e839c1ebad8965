#pragma once

#include "io/epoll_reactor.hpp"

#include <cordma/detail/coro/operation_base.hpp>

namespace cordma::c {

/// The reactor of a context that the program's loop runs: instead of blocking, it ends `dispatch`.
/// What it waits for is one descriptor, epoll's, which is readable when there is work.
class loop_reactor final : public reactor {
 public:
  /// \errors `error`: EMFILE and others.
  loop_reactor() = default;

  /// Ends when there is nothing to do, or `polls_max` polls of the kernel later.
  class idle_op;
  [[nodiscard]] idle_op until_idle() noexcept;
  [[nodiscard]] int descriptor() const noexcept { return inner_.descriptor(); }

  [[nodiscard]] const char* name() const noexcept override { return "epoll"; }
  void enable() override { inner_.enable(); }
  void watch(fd_watch& w) override {
    has_news_ = true;
    inner_.watch(w);
  }
  void unwatch(fd_watch& w) noexcept override { inner_.unwatch(w); }
  void set_alarm(time_point at) noexcept override {
    has_news_ = true;
    inner_.set_alarm(at);
  }
  void poll() noexcept override;
  void wait() noexcept override;
  void wake() noexcept override { inner_.wake(); }

 private:
  static constexpr unsigned polls_max = 64;

  [[nodiscard]] bool is_ready() const noexcept;
  void end_dispatch() noexcept;
  void take_alarm_of_inner() noexcept { alarm_fired_ = inner_.take_alarm() || alarm_fired_; }

  epoll_reactor inner_;
  bool has_news_ = true;  // The kernel does not know all watches, or not the alarm.
  unsigned polls_ = 0;
  waiter_ref dispatch_;
};

class loop_reactor::idle_op {
 public:
  using value_type = void;
  explicit idle_op(loop_reactor& of) noexcept : reactor_{of} {}
  bool start(waiter& w, const environment&) noexcept {
    reactor_.polls_ = 0;
    reactor_.dispatch_.set(w);
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  void take() noexcept {}
  result<void> take_result() noexcept { return {}; }

 private:
  loop_reactor& reactor_;
};

inline loop_reactor::idle_op loop_reactor::until_idle() noexcept { return idle_op{*this}; }

}  // namespace cordma::c
