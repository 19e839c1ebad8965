#pragma once

#include "load.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perf {

/// Returns microseconds.
inline double us(std::chrono::nanoseconds t) noexcept { return double(t.count()) / 1e3; }

/// The comparison of rounds that ours and the raw loop did in turns.
struct comparison {
  double ours_ns = 0;  ///< Median over the rounds of the time an operation.
  double raw_ns = 0;
  double ratio_low = 0, ratio_high = 0;  ///< Quartiles of the ratios of neighbours.
  std::size_t rounds = 0;
  histogram raw_latencies{};
  [[nodiscard]] double ratio() const noexcept { return ours_ns / raw_ns; }
};

/// The server's own operations of a job in both directions.
struct reverse_result {
  std::uint64_t operations = 0;
  double seconds = 0;
  std::chrono::nanoseconds p50{0}, p99{0}, max{0};
  [[nodiscard]] double per_second() const noexcept {
    return seconds > 0 ? double(operations) / seconds : 0;
  }
};

/// One line of the table.
struct result {
  job what;
  measured ours{};
  std::optional<std::chrono::nanoseconds> server_cpu{};  ///< An operation; none: in this process.
  std::optional<comparison> baseline{};
  std::optional<reverse_result> reverse{};

  [[nodiscard]] std::uint64_t operations() const noexcept { return ours.latencies.count(); }
  [[nodiscard]] double per_second() const noexcept {
    return ours.seconds > 0 ? double(operations()) / ours.seconds : 0;
  }
  /// The rate of the bytes that operations move; an echo's answer does not count.
  [[nodiscard]] double gigabytes_per_second() const noexcept {
    return per_second() * double(what.size_bytes) / 1e9;
  }
  /// The rate of both directions together.
  [[nodiscard]] double per_second_of_both() const noexcept {
    return per_second() + (reverse ? reverse->per_second() : 0);
  }
  [[nodiscard]] double gigabits_per_second() const noexcept { return gigabytes_per_second() * 8; }
  [[nodiscard]] double per_operation(std::uint64_t count) const noexcept {
    return operations() == 0 ? 0 : double(count) / double(operations());
  }
};

}  // namespace perf
