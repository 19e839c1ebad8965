#pragma once

#include "load.hpp"

#include <cordma/coro/task.hpp>

namespace perf {

/// On a terminal, a line on stderr that says how far `threads` are, until it is stopped.
cordma::task<> show_progress(job what, const load& threads);

}  // namespace perf
