#pragma once

#include "tuning.hpp"

#include <cordma/queue/completion.hpp>

#include <optional>
#include <string>
#include <vector>

namespace perf {

/// The outcome of `--tune`.
struct tuned_table {
  std::vector<tuned_range> ranges{};
  std::string text{};
};

/// Returns "all_reduce, 64K on 4 ranks": for people.
std::string title(const collective_case& what);

/// \param is_one_host  the ranks share a clock; otherwise a line says what the times are.
std::string collectives_head(bool is_one_host);
std::string collective_rows(const collective_result& r);
/// Returns the table of ranges, and the text for programs.
std::string tuned_rows(const tuned_table& t, const std::vector<collective_result>& results);

/// The origin of results.
struct collectives_origin {
  std::string device;
  cordma::completion_mode mode;
  unsigned ranks;
};
/// Returns one JSON object (docs/cordma-perf.md has its keys).
std::string collectives_json(const collectives_origin& of,
                             const std::vector<collective_result>& results,
                             const std::optional<tuned_table>& tuned);

}  // namespace perf
