#pragma once

#include "result.hpp"

#include <functional>
#include <string>
#include <vector>

namespace perf {

/// Runs each job with both ends in this process and on this thread. The raw loop that does the same
/// runs beside it, in short rounds by turns. \errors as `check_comparable`, and those of the work.
void compare_with_raw(const device_choice& device, const std::vector<job>& jobs,
                      const std::function<void(const result&)>& each);

/// \errors std::invalid_argument: the raw loop polls, on one thread, one connection.
void check_comparable(const job& what);

/// The median, by the rank (n - 1) / 2. Of none: 0.
double median(std::vector<double> values);
double quantile(std::vector<double> values, double part);

}  // namespace perf
