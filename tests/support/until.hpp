#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/io/wait_until.hpp>

#include <chrono>

namespace cordma::test {

/// `wait_until`, but looked at once a turn: for what only turns change. What was ready before has
/// gone on when it ends.
template <class Condition>
class [[nodiscard]] until_op : public operation_base<until_op<Condition>> {
 public:
  using value_type = void;
  until_op(cordma::executor& executor, Condition condition) : op_{executor, std::move(condition)} {}

  bool start(waiter& w, const environment& env) { return op_.start(w, env); }
  [[nodiscard]] bool failed() const noexcept { return op_.failed(); }
  void take() { op_.take(); }
  result<void> take_result() noexcept { return op_.take_result(); }

 private:
  detail::wait_until_op<Condition> op_;
};

template <class Condition>
until_op<Condition> until(cordma::executor& executor, Condition condition) {
  return {executor, std::move(condition)};
}

/// Ends when each timer that is due by now has fired: timers fire in order, and this one comes
/// last. For a clock that stands still; it waits for no time to pass.
inline auto due_timers_fired() { return sleep_for(duration{0}); }

/// Ends when all that was dropped is closed. Moves the clock on meanwhile, for a device that does
/// not tell of a queue pair's last receive.
inline task<> all_closed(cordma::executor& executor, manual_clock& clock) {
  do {
    clock.advance(std::chrono::milliseconds{10});
    co_await due_timers_fired();
  } while (executor.closer().running() > 0);
}

}  // namespace cordma::test
