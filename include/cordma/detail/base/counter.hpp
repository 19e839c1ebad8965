#pragma once

#include <atomic>
#include <cstdint>

namespace cordma {

/// A number that one thread changes and any thread reads. A reader may see a value that is a moment
/// old. Readers get no order: of two counters the later change may be seen first.
/// \cost `add`, on x86-64: one instruction that is not locked; others: relaxed loads and stores.
/// \thread `value`: any. Other members: one at a time, with a happens-before in between (an
///   executor's thread, or a lock); concurrent calls lose counts.
class counter {
 public:
  counter() noexcept = default;
  counter(counter&&) = delete;

  [[gnu::always_inline]] void add(std::uint64_t by = 1) noexcept {
#if defined(__x86_64__)
    // g++ makes three instructions of a relaxed load, an addition and a relaxed store.
    __asm__("addq %1, %0" : "+m"(value_) : "er"(by) : "cc");
#else
    set(value() + by);
#endif
  }
  void subtract(std::uint64_t by) noexcept { set(value() - by); }
  void set(std::uint64_t to) noexcept { value_.store(to, std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t value() const noexcept {
    return value_.load(std::memory_order_relaxed);
  }

 private:
  std::atomic<std::uint64_t> value_{0};
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
};

}  // namespace cordma
