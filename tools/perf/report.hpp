#pragma once

#include "result.hpp"
#include "run_facts.hpp"

#include <string>
#include <vector>

namespace perf {

/// The results as tables, each below 100 columns. The first, how fast, comes row by row while the
/// rest is measured.
std::string speeds_head(speed_unit unit = speed_unit::gigabytes);
std::string speeds_row(const result& r, speed_unit unit = speed_unit::gigabytes);
/// The other tables: what an operation cost, and, where there are any, the open loops and the
/// comparisons with raw verbs. Rows are in the same order in each.
std::string other_tables(const std::vector<result>& results);

/// The rows of a job that runs: what ended in a period, which ends `at_seconds` after the begin.
std::string period_head(speed_unit unit);
std::string period_row(const job& what, const histogram& latencies, double at_seconds,
                       double length_seconds, speed_unit unit);

/// Gives the tables' content as one JSON object (docs/cordma-perf.md has its keys). A quantity that
/// was not counted is null.
std::string json(const run_facts& facts, const std::vector<result>& results);

}  // namespace perf
