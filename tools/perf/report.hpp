#pragma once

#include "result.hpp"

#include <string>
#include <string_view>
#include <vector>

namespace perf {

/// The results as three tables, each below 100 columns. The first, how fast, comes row by row while
/// the rest is measured.
std::string speeds_head();
std::string speeds_row(const result& r);
/// The other two tables: what an operation cost, and, where there are any, comparisons with raw
/// verbs. Rows are in the same order in each.
std::string other_tables(const std::vector<result>& results);

/// Gives the tables' content as one JSON object (docs/cordma-perf.md has its keys). A quantity that
/// was not counted is null.
std::string json(std::string_view device, const std::vector<result>& results);

}  // namespace perf
