#pragma once

#include <cordma/runtime/runtime.hpp>

#include <chrono>
#include <cstdint>
#include <vector>

namespace cordma {
class completion_queue_driver;
}

namespace perf {

/// The costs of one thread's work so far. No other file of cordma-perf knows where the library
/// counts.
struct counters {
  std::uint64_t completions = 0;
  std::uint64_t wake_ups = 0;      ///< Times that a completion channel became readable.
  std::uint64_t arms = 0;          ///< ibv_req_notify_cq.
  std::uint64_t system_calls = 0;  ///< io_uring_enter, and reads of a channel's events.
  std::uint64_t allocations = 0;   ///< malloc and its kin, and mmap; libraries included.
  std::chrono::nanoseconds cpu{0};

  counters& operator+=(const counters& other) noexcept;
  friend counters operator-(const counters& later, const counters& before) noexcept;
};

/// The queues that connections complete into, each once.
class driver_list {
 public:
  void add(const cordma::completion_queue_driver& driver);
  [[nodiscard]] const std::vector<const cordma::completion_queue_driver*>& all() const noexcept {
    return drivers_;
  }

 private:
  std::vector<const cordma::completion_queue_driver*> drivers_;
};

/// Reads the counters of the calling thread, which is the runtime's.
counters read_counters(cordma::runtime& rt, const driver_list& drivers);
/// False in a build that counts no allocations: a sanitizer's, or one with a malloc of its own.
bool counts_allocations() noexcept;
/// Processor time of all threads of this process.
std::chrono::nanoseconds process_cpu_time() noexcept;

}  // namespace perf
