#pragma once

#include <bit>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace perf {

/// Latencies, counted in log-linear buckets as in HdrHistogram: each power of two is divided into
/// `parts` of the same width. A value that is read is at most 1 / `parts` (0.8 %) above the value
/// that was added. Values below `parts` nanoseconds, and the greatest of all, are exact. 36 KiB,
/// whatever is added; adding costs a few instructions. Ours, since Debian has HdrHistogram for Java
/// and Go alone. \thread one at a time.
class histogram {
 public:
  static constexpr unsigned part_bits = 7;
  static constexpr std::uint64_t parts = std::uint64_t{1} << part_bits;
  /// Latencies from 2^`value_bits` ns (73 min) on count as that long, but for `max`.
  static constexpr unsigned value_bits = 42;

  histogram() : counts_(bucket_of(~std::uint64_t{0}) + 1) {}

  void add(std::chrono::nanoseconds latency) noexcept {
    const auto ns = latency.count() > 0 ? std::uint64_t(latency.count()) : 0;
    ++counts_[bucket_of(ns)];
    ++count_;
    sum_ += ns;
    if (ns > max_) max_ = ns;
  }
  void add(const histogram& other) noexcept;
  void clear() noexcept;

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::chrono::nanoseconds max() const noexcept;
  [[nodiscard]] std::chrono::nanoseconds mean() const noexcept;
  /// The shortest time within which a `part` (0 to 1) of all ended. 0 of an empty one.
  [[nodiscard]] std::chrono::nanoseconds at(double part) const noexcept;

 private:
  /// Values below `parts` are their own bucket; above, the `part_bits` after the leading one count.
  static constexpr std::size_t bucket_of(std::uint64_t ns) noexcept {
    constexpr std::uint64_t most = (std::uint64_t{1} << value_bits) - 1;
    if (ns > most) ns = most;
    if (ns < parts) return std::size_t(ns);
    const auto shift = unsigned(std::bit_width(ns)) - part_bits - 1;
    return std::size_t((std::uint64_t{shift} << part_bits) + (ns >> shift));
  }
  /// The greatest value that belongs there.
  static constexpr std::uint64_t top_of(std::size_t bucket) noexcept {
    if (bucket < parts) return bucket;
    const auto shift = unsigned(bucket >> part_bits) - 1;
    const std::uint64_t leading = parts + (bucket & (parts - 1));
    return ((leading + 1) << shift) - 1;
  }

  std::vector<std::uint64_t> counts_;
  std::uint64_t count_ = 0;
  std::uint64_t sum_ = 0;
  std::uint64_t max_ = 0;
};

}  // namespace perf
