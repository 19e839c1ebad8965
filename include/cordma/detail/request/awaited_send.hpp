#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/queue/send_operation.hpp>

#include <memory>

namespace cordma {

/// A send operation that coroutines await, one after another: a handle can be awaited again after a
/// stopped wait.
/// \thread the executor's.
class awaited_send : public send_operation {
 public:
  ~awaited_send() override { forget_waiter(); }

  [[nodiscard]] bool failed() const noexcept { return was_stopped_ || has_failed(); }
  /// Returns the scheduler on which the operation ends. Null once the operation has ended, because
  /// the queue may be gone.
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  /// Posts the operation, unless it was posted before, and notifies `w` of its end. Returns true if
  /// it has ended.
  bool start(waiter& w, const environment& env) noexcept;

 protected:
  awaited_send(send_queue& queue, std::uint16_t count, std::uint64_t* values_before) noexcept
      : send_operation{queue, count, values_before} {}
  awaited_send(awaited_send&& other, std::uint64_t* values_before) noexcept;

  [[nodiscard]] bool was_stopped() const noexcept { return was_stopped_; }
  /// Leaves the queue, before destruction. The waiter is not notified: it destroys this operation,
  /// or is gone.
  void leave() noexcept {
    forget_waiter();
    send_operation::leave();
  }

 private:
  /// Waiter and stop callback of one wait. Destroying the coroutine unlinks its waiter.
  struct wait_state : stop_callback {
    explicit wait_state(awaited_send& o) noexcept : stop_callback{&on_stop}, owner{o} {}
    awaited_send& owner;
    waiter_ref who;
    scheduler* resumes_on = nullptr;
  };

  static void on_stop(stop_callback& self) noexcept;
  void forget_waiter() noexcept {
    if (!is_awaited_) return;
    is_awaited_ = false;
    std::destroy_at(&wait_);
  }
  void on_end() noexcept final;
  /// Ends this wait after a stop. Returns true.
  bool stopped() noexcept;

  bool is_awaited_ = false;   // `wait_` is constructed.
  bool was_stopped_ = false;  // A stop ended this wait; a handle can be awaited again.
  union {
    wait_state wait_;
  };
};

}  // namespace cordma
