#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/io/poller.hpp>
#include <cordma/io/executor.hpp>

#include <concepts>
#include <utility>

namespace cordma {

namespace detail {

/// What `wait_until` gives.
template <std::predicate Condition>
class [[nodiscard]] wait_until_op : public operation_base<wait_until_op<Condition>>,
                                    private poller,
                                    private suspension {
 public:
  using value_type = void;
  wait_until_op(executor& home, Condition condition)
      : suspension{&on_stop}, home_{home}, condition_{std::move(condition)} {}

  bool start(waiter& w, const environment& env) noexcept {
    stopped_ = env.stop.stop_requested();
    if (stopped_ || condition_()) return true;
    suspension::begin(w, {&home_, env.stop});
    home_.add_restless(*this);
    return false;
  }
  [[nodiscard]] scheduler* own_scheduler() const noexcept { return &home_; }
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

  executor& home_;
  Condition condition_;
  bool stopped_ = false;
};

}  // namespace detail

/// Ends when `condition()` is true, which `home` asks time and again and does not sleep meanwhile:
/// for what nobody tells of, above all memory that a peer writes, as shmem_wait_until(3) does.
///
///     std::atomic_ref counter{*written_by_the_peer};
///     co_await wait_until(home, [&] { return counter.load(std::memory_order_acquire) == next; });
///
/// Of bytes that a peer writes the condition should read one aligned word, in one load that
/// acquires: what else the same WRITE brings may come later (IBTA 9.5), though most devices, and
/// perftest, write upwards. A message that follows (SEND, or a WRITE with immediate) tells of all
/// of it for certain, and lets this end sleep. Contract: `condition` does not throw, and takes no
/// longer than a poll. \errors  only `cancelled`, when it is stopped.
/// \thread that of `home`. \cost while it waits alone, between two polls of the completion queue
/// one call of `condition`; no allocation.
template <std::predicate Condition>
detail::wait_until_op<Condition> wait_until(executor& home, Condition condition) {
  return {home, std::move(condition)};
}

}  // namespace cordma
