#pragma once

#include <atomic>

namespace perf {

/// Makes the first SIGINT or SIGTERM set the flag that is returned, and the second one end the
/// process. The flag lives as long as the process.
const std::atomic<bool>& stop_by_signal();

}  // namespace perf
