#pragma once

#include "wire/time.hpp"

#ifdef SOFTVERBS_MODEL
#include <model/model.hpp>
#endif

#include <sched.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <thread>

namespace softverbs {

// The shared words and locks by which threads and processes decide who works and who sleeps: each
// access is a step. In the explorer's build (tests/explore), its scheduler may run other threads
// before each step. In all other builds, these are the plain types and empty functions.
//
// The model checker's build (SOFTVERBS_MODEL; the checker is not part of this project) has single
// classes with atomics that read what C++ allows.

#ifdef SOFTVERBS_EXPLORE

/// The explorer defines these.
namespace explorer {
void at_step() noexcept;
void lock(const void* mutex) noexcept;  ///< waits, in steps, until the mutex is free
[[nodiscard]] bool try_lock(const void* mutex) noexcept;
void unlock(const void* mutex) noexcept;
void begin_thread() noexcept;
void end_thread() noexcept;
void yield() noexcept;
[[nodiscard]] clock::time_point now() noexcept;
/// Waits, in steps, until the descriptor is readable or the time has passed (negative: for ever).
/// Returns the rest of the time, to wait for in the kernel.
std::chrono::nanoseconds wait(int fd, std::chrono::nanoseconds limit) noexcept;
}  // namespace explorer

template <class T>
class step_atomic {
 public:
  constexpr step_atomic() noexcept = default;
  constexpr step_atomic(T value) noexcept : value_{value} {}
  T load(std::memory_order = std::memory_order_seq_cst) const noexcept {
    explorer::at_step();
    return value_.load();
  }
  void store(T value, std::memory_order = std::memory_order_seq_cst) noexcept {
    explorer::at_step();
    value_.store(value);
  }
  T exchange(T value) noexcept {
    explorer::at_step();
    return value_.exchange(value);
  }
  static constexpr bool is_always_lock_free = std::atomic<T>::is_always_lock_free;

 private:
  std::atomic<T> value_{};
};

class step_mutex {
 public:
  void lock() noexcept {
    explorer::lock(this);
    mutex_.lock();
  }
  bool try_lock() noexcept { return explorer::try_lock(this) && mutex_.try_lock(); }
  void unlock() noexcept {
    mutex_.unlock();
    explorer::unlock(this);
  }

 private:
  std::mutex mutex_;
};

#else

#ifdef SOFTVERBS_MODEL
template <class T>
using step_atomic = model::atomic<T>;
using step_mutex = model::mutex;
#else
template <class T>
using step_atomic = std::atomic<T>;
using step_mutex = std::mutex;
#endif

namespace explorer {
inline void at_step() noexcept {}
inline void lock(const void*) noexcept {}
inline bool try_lock(const void*) noexcept { return true; }
inline void unlock(const void*) noexcept {}
inline void begin_thread() noexcept {}
inline void end_thread() noexcept {}
#ifdef SOFTVERBS_MODEL
inline void yield() noexcept { model::yield(); }
#else
inline void yield() noexcept { ::sched_yield(); }
#endif
inline clock::time_point now() noexcept { return clock::now(); }
inline std::chrono::nanoseconds wait(int, std::chrono::nanoseconds limit) noexcept { return limit; }
}  // namespace explorer

#endif

#ifdef SOFTVERBS_MODEL
template <class T>
using modelled_atomic = model::atomic<T>;
using modelled_mutex = model::mutex;
inline void modelled_yield() noexcept { model::yield(); }
#else
/// An atomic and a mutex by which no thread decides to sleep, and the yield of one that waits for
/// others.
template <class T>
using modelled_atomic = std::atomic<T>;
using modelled_mutex = std::mutex;
inline void modelled_yield() noexcept { std::this_thread::yield(); }
#endif

/// A bound that is small in the builds of the explorer and of the model checker, so that few steps
/// reach it.
template <class T>
constexpr T bound(T usual, T small) {
#if defined(SOFTVERBS_EXPLORE) || defined(SOFTVERBS_MODEL)
  static_cast<void>(usual);
  return small;
#else
  static_cast<void>(small);
  return usual;
#endif
}

/// True where a run finds what the one before has left.
#ifdef SOFTVERBS_EXPLORE
inline constexpr bool runs_share_state = true;
#else
inline constexpr bool runs_share_state = false;
#endif

}  // namespace softverbs
