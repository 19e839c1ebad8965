#pragma once

#include <cordma/detail/base/step.hpp>

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

namespace cordma::detail {

/// Calls that other threads post to one thread. They form a lock-free stack that its owner takes in
/// one exchange and reverses, so that calls run in the order of posting.
///
/// One atomic has three kinds of values: null (empty, the owner is awake), the newest call, or
/// `asleep` (empty, the owner is about to block). Sleeping and posting are read-modify-writes of
/// this one location, which all threads see in one order. No wake-up is therefore lost, and nothing
/// needs to be seq_cst.
///
/// If the owner's null → `asleep` comes first, the poster finds `asleep` and wakes the owner. If
/// the call comes first, the owner does not find null and stays awake. Only the first of many
/// posters finds `asleep`: each sleep costs one wake-up.
class mailbox {
 public:
  mailbox() noexcept = default;
  mailbox(mailbox&&) = delete;
  /// Destroys, without a call, what nobody took.
  ~mailbox() { discard_all(); }

  /// Posts `f()`, which must not throw. Returns true when the owner sleeps: the caller must wake
  /// it. \errors `std::bad_alloc`. \thread any. \cost one `new`, one compare-exchange.
  template <class F>
  [[nodiscard]] bool leave(F&& f) {
    call* const mine = new call_of<std::decay_t<F>>{std::forward<F>(f)};
    call* newest = newest_.load(std::memory_order_relaxed);
    do {
      mine->next_ = newest == &asleep_ ? nullptr : newest;
      // Release publishes the call, and what its poster wrote before, to the owner's `take`.
    } while (!newest_.compare_exchange_weak(newest, mine, std::memory_order_release,
                                            std::memory_order_relaxed));
    return newest == &asleep_;
  }

  // The owner's thread calls the following functions.

  void discard_all() noexcept {
    for (call* c = take(); c != nullptr;) delete std::exchange(c, c->next_);
  }
  /// Runs all posted calls; returns how many.
  std::size_t run_all() noexcept {
    if (newest_.load(std::memory_order_relaxed) == nullptr) [[likely]]
      return 0;
    std::size_t count = 0;
    for (call* c = take(); c != nullptr; ++count) {
      const std::unique_ptr<call> oldest{std::exchange(c, c->next_)};
      oldest->run();
    }
    return count;
  }
  /// Marks the owner as asleep. Returns false when there is a call to run first. After true,
  /// `run_all` marks it as awake.
  [[nodiscard]] bool fall_asleep() noexcept {
    call* expected = nullptr;
    // Relaxed: sleeping publishes nothing, and on failure `take` will acquire.
    return newest_.compare_exchange_strong(expected, &asleep_, std::memory_order_relaxed,
                                           std::memory_order_relaxed);
  }

 private:
  struct call {
    virtual ~call() = default;
    virtual void run() noexcept {}
    modelled_data<call*> next_ = nullptr;
  };
  template <class F>
  struct call_of final : call {
    template <class Source>
    explicit call_of(Source&& source) : f_{std::forward<Source>(source)} {}
    void run() noexcept override { f_(); }
    F f_;
  };

  /// Takes all calls, the oldest first; leaves null.
  call* take() noexcept {
    // Acquire makes visible what the posters wrote before. The releases of older calls are
    // continued by the newest call's compare-exchange.
    call* newest = newest_.exchange(nullptr, std::memory_order_acquire);
    if (newest == &asleep_) return nullptr;
    call* oldest = nullptr;
    while (newest != nullptr) {
      call* const next = newest->next_;
      newest->next_ = oldest;
      oldest = std::exchange(newest, next);
    }
    return oldest;
  }

  call asleep_;
  step_atomic<call*> newest_{nullptr};
};

}  // namespace cordma::detail
