#pragma once

namespace cordma {

/// \errors  EINVAL: not one of `runtime_group::allowed_cpus()`; the detail lists them.
void check_cpu(unsigned cpu);

/// Keeps the calling thread on one CPU. \errors as `check_cpu`; those of sched_setaffinity(2).
void pin_to(unsigned cpu);

}  // namespace cordma
