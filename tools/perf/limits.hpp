#pragma once

#include "result.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace perf {

/// A measured quantity that a limit can name.
enum class quantity : std::uint8_t {
  p50,
  p90,
  p99,
  p99_9,
  max,
  mean,
  cpu,
  ops,
  gigabytes,
  gigabits,
  achieved,
  ratio
};

/// A bound beyond which a result fails.
struct limit {
  quantity of = quantity::p99;
  bool is_most = true;  ///< True: a value above fails; false: one below.
  double value = 0;     ///< Times in nanoseconds.
  std::string text{};   ///< The user's words.
};

/// Reads limits such as "p99=20us", "ops/s=1M" or "achieved=0.99".
/// \param option  "--fail-above" or "--fail-below".
/// \errors std::invalid_argument: no such quantity, or no value of such; names the text and both.
limit parse_limit(const std::string& option, std::string_view text);

/// \errors std::invalid_argument: the job measures nothing that the limit could bound.
void check_measured(const limit& bound, const job& what, bool has_baseline);

/// Returns a line that says which value is beyond the limit; nothing if it is kept.
std::optional<std::string> broken(const limit& bound, const result& r);

}  // namespace perf
