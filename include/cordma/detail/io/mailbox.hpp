#pragma once

#include <cordma/detail/base/step.hpp>

#include <type_traits>
#include <utility>

namespace cordma {

/// Calls that other threads leave for one: a lock-free stack that its owner empties in one exchange
/// and turns round, so that calls run in the order they were left.
///
/// One atomic says all: null (empty, the owner is awake), the newest call, or `asleep` (empty, the
/// owner is about to block). That is why no wake-up is lost, and why nothing here needs to be
/// seq_cst: putting the owner to sleep and leaving a call are read-modify-writes of one location,
/// which all threads see in one order. Either the owner's null → `asleep` comes first, and whoever
/// leaves a call finds `asleep` and wakes it; or the call comes first, and the owner, not finding
/// null, stays awake. Of many that leave calls only the first finds `asleep`: one wake-up a sleep.
class mailbox {
 public:
  mailbox() noexcept = default;
  mailbox(const mailbox&) = delete;
  mailbox& operator=(const mailbox&) = delete;
  /// Calls nobody took are destroyed, not called.
  ~mailbox() { discard_all(); }

  /// Leaves `f()`, which must not throw. True when the owner sleeps: the caller must wake it.
  /// \errors `std::bad_alloc`. \thread any. \cost one `new`, one compare-exchange.
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

  // The rest is for the owner's thread.

  void discard_all() noexcept {
    for (call* c = take(); c != nullptr;) std::exchange(c, c->next_)->finish(false);
  }
  /// Runs all there is; returns how many.
  std::size_t run_all() noexcept {
    if (newest_.load(std::memory_order_relaxed) == nullptr) [[likely]]
      return 0;
    std::size_t count = 0;
    for (call* c = take(); c != nullptr; ++count) std::exchange(c, c->next_)->finish(true);
    return count;
  }
  /// False when there is a call to run first. After true, `run_all` wakes up.
  [[nodiscard]] bool fall_asleep() noexcept {
    call* expected = nullptr;
    // Relaxed: nothing is published by sleeping, and on failure `take` will acquire.
    return newest_.compare_exchange_strong(expected, &asleep_, std::memory_order_relaxed,
                                           std::memory_order_relaxed);
  }

 private:
  struct call {
    using function = void (*)(call&, bool run) noexcept;
    explicit call(function finish_it) noexcept : finish_{finish_it} {}
    /// Deletes it; runs it before if `run`.
    void finish(bool run) noexcept { finish_(*this, run); }
    call* next_ = nullptr;

   private:
    function finish_;
  };
  template <class F>
  struct call_of : call {
    template <class Source>
    explicit call_of(Source&& source) : call{&finish_one}, f_{std::forward<Source>(source)} {}
    static void finish_one(call& self, bool run) noexcept {
      auto* const mine = static_cast<call_of*>(&self);
      if (run) mine->f_();
      delete mine;
    }
    F f_;
  };

  /// Everything, the oldest first; leaves null.
  call* take() noexcept {
    // Acquire: sees what those who left the calls wrote before. The calls below the newest were
    // published by releases that its compare-exchange continues.
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

  call asleep_{nullptr};
  step_atomic<call*> newest_{nullptr};
};

}  // namespace cordma
