#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>

namespace cordma {

namespace detail {

/// Runs what is ready, and waits for timers, until `ended`. Asserts when neither is left, because
/// nothing on this thread could then end the operation.
CORDMA_EXPORT void drive(cordma::scheduler& scheduler, const bool& ended);

class end_flag : public waiter {
 public:
  end_flag() noexcept : waiter{&set} {}
  [[nodiscard]] const bool& is_set() const noexcept { return set_; }

 private:
  static std::coroutine_handle<> set(waiter& self) noexcept {
    static_cast<end_flag&>(self).set_ = true;
    return std::noop_coroutine();
  }
  bool set_ = false;
};

}  // namespace detail

/// Runs a task or another operation to its end on this thread and gives its value or throws.
/// Meanwhile the thread serves `scheduler`'s ready list and timers. Use it for work without I/O;
/// programs use `executor::run`.
template <operation Op>
value_of<Op> sync_wait(cordma::scheduler& scheduler, Op&& op) {
  detail::end_flag flag;
  if (!op.start(flag, environment{&scheduler, {}})) detail::drive(scheduler, flag.is_set());
  return op.take();
}

template <operation Op>
value_of<Op> sync_wait(Op&& op) {
  cordma::scheduler scheduler;
  return sync_wait(scheduler, std::forward<Op>(op));
}

}  // namespace cordma
