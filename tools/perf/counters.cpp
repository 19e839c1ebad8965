#include "counters.hpp"

#include "queue/completion_queue_driver.hpp"

#include <support/allocations.hpp>

#include <algorithm>
#include <ctime>

namespace perf {
namespace {

std::chrono::nanoseconds cpu_time(clockid_t of) noexcept {
  timespec t{};
  if (::clock_gettime(of, &t) != 0) return {};
  return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
}

}  // namespace

counters& counters::operator+=(const counters& other) noexcept {
  completions += other.completions;
  wake_ups += other.wake_ups;
  arms += other.arms;
  system_calls += other.system_calls;
  allocations += other.allocations;
  cpu += other.cpu;
  return *this;
}

counters operator-(const counters& later, const counters& before) noexcept {
  return {.completions = later.completions - before.completions,
          .wake_ups = later.wake_ups - before.wake_ups,
          .arms = later.arms - before.arms,
          .system_calls = later.system_calls - before.system_calls,
          .allocations = later.allocations - before.allocations,
          .cpu = later.cpu - before.cpu};
}

void driver_list::add(const cordma::completion_queue_driver& driver) {
  if (std::ranges::find(drivers_, &driver) == drivers_.end()) drivers_.push_back(&driver);
}

counters read_counters(cordma::runtime& rt, const driver_list& drivers) {
  counters now{.system_calls = rt.executor().reactor().enters(),
               .allocations = support::thread_allocation_count(),
               .cpu = cpu_time(CLOCK_THREAD_CPUTIME_ID)};
  for (const cordma::completion_queue_driver* driver : drivers.all()) {
    now.completions += driver->counters().completions;
    now.wake_ups += driver->counters().wake_ups;
    now.arms += driver->counters().arms;
    now.system_calls += driver->counters().events;
  }
  return now;
}

bool counts_allocations() noexcept { return support::counts_allocations(); }
std::chrono::nanoseconds process_cpu_time() noexcept { return cpu_time(CLOCK_PROCESS_CPUTIME_ID); }

}  // namespace perf
