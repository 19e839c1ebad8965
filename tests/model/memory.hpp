#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace model {

/// The threads of a scenario, and the one that begins and ends it.
inline constexpr unsigned threads_max = 6;
/// The atomics, mutexes and events of a run.
inline constexpr unsigned objects_max = 32;

using word = std::uint64_t;

/// A thread's knowledge of the past. Up to `times`, what the threads did happened before. Of each
/// atomic, no store before the one in `stores` may be read any more.
struct view {
  std::array<std::uint16_t, threads_max> times{};
  std::array<std::uint16_t, objects_max> stores{};

  void join(const view& other) noexcept {
    for (unsigned n = 0; n < threads_max; ++n) times[n] = std::max(times[n], other.times[n]);
    join_stores(other);
  }
  void join_stores(const view& other) noexcept {
    for (unsigned n = 0; n < objects_max; ++n) stores[n] = std::max(stores[n], other.stores[n]);
  }
};

/// The knowledge of one thread, as fences need it.
struct knowledge {
  view now;
  view released;    ///< at the last release fence: what a relaxed store publishes
  view acquirable;  ///< published by the stores that relaxed loads have read
};

enum class kind : std::uint8_t { load, store, change, fence, lock, try_lock, unlock, wait, wake };

/// The next access of a thread, before which others may run.
struct operation {
  model::kind kind;
  std::uint8_t object = 0;
  std::memory_order order = std::memory_order_seq_cst;
};

/// True if two threads may do these in either order, with the same results.
[[nodiscard]] bool independent(const operation& a, const operation& b) noexcept;

[[nodiscard]] constexpr bool acquires(std::memory_order order) noexcept {
  return order == std::memory_order_acquire || order == std::memory_order_consume ||
         order == std::memory_order_acq_rel || order == std::memory_order_seq_cst;
}
[[nodiscard]] constexpr bool releases(std::memory_order order) noexcept {
  return order == std::memory_order_release || order == std::memory_order_acq_rel ||
         order == std::memory_order_seq_cst;
}

/// A store in the modification order of its atomic.
struct stored {
  word value = 0;
  view published;
};

/// The time of an access by each thread; 0: none.
using access_times = std::array<std::uint16_t, threads_max>;

/// An atomic, a mutex or an event.
struct shared_object {
  const void* at = nullptr;
  const char* type = "";
  unsigned maker = 0;
  std::uint16_t made_at = 0;
  bool is_gone = false;
  access_times accessed{};
  std::vector<stored> stores;  ///< an atomic's
  int holder = -1;             ///< a mutex's; -1: none
  view published;              ///< a mutex's, at its last unlock; of what is watched, at its wakes
  bool is_set = false;         ///< an event's
};

/// Data without an order of their own.
struct shared_data {
  const void* at = nullptr;
  bool is_gone = false;
  unsigned writer = 0;
  std::uint16_t written_at = 0;
  access_times read_at{};
};

/// One line of a finding's schedule.
struct traced {
  std::uint8_t thread;
  model::kind kind;
  std::uint8_t object;
  std::memory_order order;
  bool is_done;  ///< a compare-exchange or try_lock that succeeded, a load of the newest store
  std::uint16_t store;
  word value;
};

/// The name of an object and the names of its members that the model orders.
struct named {
  const void* at;
  std::size_t bytes;
  std::string name;
  std::vector<std::string> members;
};

}  // namespace model
