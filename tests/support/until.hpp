#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/io/executor.hpp>

#include <chrono>

namespace cordma::test {

/// Ends in the executor's turn in which `condition` becomes true: it is looked at once a turn, so
/// for what only turns change it needs neither a sleep nor a spin.
template <class Condition>
class [[nodiscard]] until_op : public operation_base<until_op<Condition>>,
                               private poller,
                               private suspension {
 public:
  using value_type = void;
  until_op(executor& home, Condition condition)
      : suspension{&on_stop}, home_{home}, condition_{std::move(condition)} {}

  bool start(waiter& w, const environment& env) {
    stopped_ = env.stop.stop_requested();
    if (stopped_ || condition_()) return true;
    begin(w, {&home_, env.stop});
    home_.add(*this);
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return stopped_; }
  void take() { take_result().value(); }
  result<void> take_result() noexcept {
    if (stopped_) return cancelled_result;
    return {};
  }

 private:
  std::size_t poll() noexcept override {
    if (!condition_()) return 0;
    leave();
    return 1;
  }
  bool prepare_wait() noexcept override { return !condition_(); }
  static void on_stop(stop_callback& self) noexcept {
    auto& op = static_cast<until_op&>(self);
    op.stopped_ = true;
    op.leave();
  }
  void leave() noexcept {
    list_hook<poller>::unlink();
    suspension::end();
  }

  executor& home_;
  Condition condition_;
  bool stopped_ = false;
};

template <class Condition>
until_op<Condition> until(executor& home, Condition condition) {
  return {home, std::move(condition)};
}

/// Ends when each timer that is due by now has fired: timers fire in order, and this one comes
/// last. For a clock that stands still; it waits for no time to pass.
inline auto due_timers_fired() { return sleep_for(duration{0}); }

/// Ends when all that was dropped is closed; moves the clock on meanwhile, for a device that does
/// not tell of a queue pair's last receive is waited for.
inline task<> all_closed(executor& home, manual_clock& clock) {
  do {
    clock.advance(std::chrono::milliseconds{10});
    co_await due_timers_fired();
  } while (home.closer().running() > 0);
}

}  // namespace cordma::test
