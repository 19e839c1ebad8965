#pragma once

#include "collective_result.hpp"
#include "group/host_map.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace perf {

/// A range of lengths where another algorithm is faster than the built-in table's.
struct tuned_range {
  const algorithm* by = nullptr;
  std::uint64_t first_bytes = 0;  ///< 0: from the shortest on
  std::uint64_t last_bytes = 0;   ///< the longest that was measured
  double gain = 1;                ///< mean over the lengths, of the built-in time by that of `by`
};

/// A change of algorithms has to save so much of the time, over the lengths of a range together.
inline constexpr double worthwhile = 1.05;
/// A length where the gain, less what is doubtful of it, is below this speaks for no change.
inline constexpr double noticeable = 1.03;

/// Finds where to switch between algorithms. Lengths above the longest measured keep the built-in
/// choice.
/// \param results  of each operation the same algorithms, the built-in choice among them.
std::vector<tuned_range> find_tuned_ranges(const std::vector<collective_result>& results);

/// Returns the changes as `group_options::algorithms` has them, for this number of ranks.
/// \errors std::logic_error: the text, read back, does not choose what it was made of.
std::string table_text(const std::vector<tuned_range>& changes,
                       const std::vector<collective_result>& results,
                       const cordma::detail::host_map* hosts);

}  // namespace perf
