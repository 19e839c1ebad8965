#pragma once

#include <vector>

namespace cordma {

/// The CPUs that the calling thread may run on, ascending: what taskset(1), a cpuset or whoever
/// started it left it. Threads that it starts inherit them. \errors those of sched_getaffinity(2).
[[nodiscard]] std::vector<unsigned> allowed_cpus();

/// \errors  EINVAL: not one of those; the detail lists them.
void check_cpu(unsigned cpu);

/// Keeps the calling thread on one CPU. \errors as `check_cpu`; those of sched_setaffinity(2).
void pin_to(unsigned cpu);

}  // namespace cordma
