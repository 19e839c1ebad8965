#pragma once

#include "result.hpp"
#include "run_facts.hpp"

#include <string>
#include <vector>

namespace perf {

/// Returns a header and a row for each result. A value that does not exist is empty. Each row has
/// the facts, so rows of many runs fit into one table.
std::string csv(const run_facts& facts, const std::vector<result>& results);

/// Returns a header, and a row for each bucket of each result's latencies that is not empty.
std::string histogram_csv(const std::vector<result>& results);

}  // namespace perf
