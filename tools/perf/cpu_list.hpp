#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace perf {

/// Reads "0,2,4-7".
/// \errors std::invalid_argument: no such list, or a CPU that this process may not use; names both.
std::vector<unsigned> parse_cpus(std::string_view text);

/// Returns the CPUs for `threads` threads, from the one at `first` on. Of an empty list: none.
/// \errors std::invalid_argument: the list has fewer.
std::vector<unsigned> cpus_for(const std::vector<unsigned>& all, std::size_t first,
                               std::size_t threads);

}  // namespace perf
