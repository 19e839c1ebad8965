#pragma once

#ifdef CORDMA_MODEL
#include <model/model.hpp>
#endif

#include <atomic>

namespace cordma {

// This header defines the accesses by which threads interact while an executor decides to sleep. In
// the explorer's build (CORDMA_EXPLORE, see tests/explore) another thread may run before each
// access; in all other builds the accesses use the plain types.
//
// In the model checker's build (CORDMA_MODEL, see tests/model) the atomics read what C++ allows,
// and accesses to data that are in no order are found.

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

#elif defined(CORDMA_MODEL)

template <class T>
using step_atomic = model::atomic<T>;

#else

template <class T>
using step_atomic = std::atomic<T>;

#endif

namespace detail {

#ifdef CORDMA_MODEL

template <class T>
using modelled_atomic = model::atomic<T>;
template <class T>
using modelled_data = model::data<T>;

#else

/// An atomic by which no thread decides to sleep.
template <class T>
using modelled_atomic = std::atomic<T>;
/// Plain data that threads share.
template <class T>
using modelled_data = T;

#endif

}  // namespace detail

}  // namespace cordma
