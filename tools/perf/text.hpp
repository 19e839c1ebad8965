#pragma once

#include <string>
#include <string_view>

namespace perf {

/// Appends to `out`, formatted as by printf(3).
[[gnu::format(printf, 2, 3)]] void append(std::string& out, const char* format, ...);

/// Returns a string of JSON.
std::string json_string(std::string_view text);

/// Fails before hours of measuring, not after. What is in the file stays until then.
/// \param path  empty: there is none.
/// \errors std::runtime_error: names the file, and why it cannot be written.
void check_writable(const std::string& path);
/// \errors as `check_writable`.
void write_file(const std::string& path, const std::string& text);

}  // namespace perf
