#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace perf {

/// The gaps between the starts of operations.
enum class gap_kind : std::uint8_t { fixed, exponential };
const char* to_string(gap_kind gaps) noexcept;
/// \errors std::invalid_argument: no such one; lists them.
gap_kind parse_gaps(std::string_view text);

/// Reads operations a second, "5000", "20k" or "1.5M", or a sweep FROM:TO, which doubles.
/// \errors std::invalid_argument: names the text, and how to write it.
std::vector<double> parse_rates(std::string_view text);
/// 200000 is "200k".
std::string rate_text(double per_second);

/// The rate of an open loop: operations start when it says, whether earlier ones have ended or not.
struct pace_options {
  double per_second = 0;
  gap_kind gaps = gap_kind::fixed;
  std::uint64_t seed = 0;  ///< Chooses the exponential gaps.

  static constexpr double per_second_min = 0.1;
  static constexpr double per_second_max = 1e8;
};

/// The times at which operations of an open loop are due. The first one is due at `start`.
class pace {
 public:
  using time_point = std::chrono::steady_clock::time_point;

  pace(const pace_options& options, time_point start) noexcept
      : options_{options}, start_{start}, state_{options.seed} {}
  /// Returns the time at which the next operation is due.
  [[nodiscard]] time_point next() const noexcept {
    return start_ + std::chrono::nanoseconds{std::int64_t(offset_ns_)};
  }
  void advance() noexcept;
  /// Returns how many operations are due from the next one on and before `deadline`. With
  /// exponential gaps: the expected number.
  [[nodiscard]] std::uint64_t due_before(time_point deadline) const noexcept;

 private:
  [[nodiscard]] double random_part() noexcept;

  pace_options options_;
  time_point start_;
  std::uint64_t count_ = 0;
  double offset_ns_ = 0;
  std::uint64_t state_;
};

}  // namespace perf
