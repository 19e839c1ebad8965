#pragma once

#include "collective_plan.hpp"

namespace perf {

/// Measures collective operations: as a rank that a launcher started, or in processes that are
/// started here. Rank 0 decides, and prints.
/// \returns the exit status; the reason is printed where it is not another rank's to tell.
/// \errors std::invalid_argument, std::runtime_error: what the processes started here tell.
int run_collectives(const collectives_options& o);

}  // namespace perf
