#pragma once

#include <atomic>

namespace cordma {

// This header defines the accesses by which threads interact while an executor decides to sleep. In
// the explorer's build (CORDMA_EXPLORE, see tests/explore) another thread may run before each
// access; in all other builds the accesses use the plain types.

#ifdef CORDMA_EXPLORE

namespace explorer {
void at_step() noexcept;
}

template <class T>
class step_atomic {
 public:
  constexpr step_atomic(T value) noexcept : value_{value} {}
  T load(std::memory_order order) const noexcept {
    explorer::at_step();
    return value_.load(order);
  }
  T exchange(T value, std::memory_order order) noexcept {
    explorer::at_step();
    return value_.exchange(value, order);
  }
  bool compare_exchange_weak(T& expected, T value, std::memory_order success,
                             std::memory_order failure) noexcept {
    return compare_exchange_strong(expected, value, success, failure);
  }
  bool compare_exchange_strong(T& expected, T value, std::memory_order success,
                               std::memory_order failure) noexcept {
    explorer::at_step();
    return value_.compare_exchange_strong(expected, value, success, failure);
  }

 private:
  std::atomic<T> value_;
};

#else

template <class T>
using step_atomic = std::atomic<T>;

#endif

}  // namespace cordma
