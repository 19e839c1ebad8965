#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/io/poller.hpp>
#include <cordma/io/executor.hpp>

#include <concepts>
#include <utility>

namespace cordma {

namespace detail {

/// Type that `wait_until` returns.
template <std::predicate Condition>
class [[nodiscard]] wait_until_op : public operation_base<wait_until_op<Condition>>,
                                    private poller,
                                    private suspension {
 public:
  using value_type = void;
  wait_until_op(cordma::executor& executor, Condition condition)
      : suspension{&on_stop}, executor_{executor}, condition_{std::move(condition)} {}

  bool start(waiter& w, const environment& env) noexcept {
    stopped_ = env.stop.stop_requested();
    if (stopped_ || condition_()) return true;
    suspension::begin(w, {&executor_, env.stop});
    executor_.add_restless(*this);
    return false;
  }
  [[nodiscard]] scheduler* own_scheduler() const noexcept { return &executor_; }
  [[nodiscard]] bool failed() const noexcept { return stopped_; }
  [[gnu::always_inline]] void take() {
    if (stopped_) [[unlikely]]
      take_result().value();
  }
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
  bool prepare_wait() noexcept override { return false; }
  static void on_stop(stop_callback& self) noexcept {
    auto& op = static_cast<wait_until_op&>(self);
    op.stopped_ = true;
    op.leave();
  }
  void leave() noexcept {
    list_hook<poller>::unlink();
    suspension::end();
  }

  cordma::executor& executor_;
  Condition condition_;
  bool stopped_ = false;
};

}  // namespace detail

/// Waits until `condition()` is true. `executor` calls it repeatedly and does not sleep meanwhile.
/// Use it for changes without a notification, above all memory that a peer writes, as
/// shmem_wait_until(3) does.
///
///     std::atomic_ref counter{*written_by_the_peer};
///     co_await wait_until(executor, [&] { return counter.load(std::memory_order_acquire) == next;
///     });
///
/// For bytes that a peer writes, `condition` should read one aligned word, in one load that
/// acquires. Other bytes of the same WRITE may come later (IBTA 9.5), though most devices, and
/// perftest, write upwards. A following message (SEND, or a WRITE with immediate data) guarantees
/// all of them, and lets the executor sleep.
///
/// `condition` must not throw, and takes no longer than a poll.
/// \errors only `cancelled`, after a stop.
/// \thread that of `executor`.
/// \cost while the wait is alone, one call of `condition` between two polls of the completion
///   queue; no allocation.
template <std::predicate Condition>
detail::wait_until_op<Condition> wait_until(cordma::executor& executor, Condition condition) {
  return {executor, std::move(condition)};
}

}  // namespace cordma
