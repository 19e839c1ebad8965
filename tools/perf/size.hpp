#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perf {

/// Reads "8", "64K", "1M" or "1G": powers of 1024.
/// \errors std::invalid_argument: not a number, or more than 2^63; `what` and the text are named.
std::uint64_t parse_size(std::string_view what, std::string_view text);

/// Reads one value, or a sweep "FROM:TO": FROM, twice that, and so on, up to TO.
/// \errors as `parse_size`; std::invalid_argument: FROM is 0 or above TO.
std::vector<std::uint64_t> parse_sweep(std::string_view what, std::string_view text);

/// Gives the shortest exact text that `parse_size` reads: 65536 is "64K", 1000 is "1000".
std::string size_text(std::uint64_t size_bytes);

/// \errors std::invalid_argument: `value` is not from `low` to `high`; all are named.
void check_range(const char* name, std::uint64_t value, std::uint64_t low, std::uint64_t high);

}  // namespace perf
