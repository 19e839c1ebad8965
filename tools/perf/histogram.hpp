#pragma once

#include <atomic>
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
    increase(counts_[bucket_of(ns)], 1);
    increase(count_, 1);
    increase(sum_, ns);
    if (ns > max_) std::atomic_ref{max_}.store(ns, std::memory_order_relaxed);
  }
  void add(const histogram& other) noexcept;
  void clear() noexcept;
  /// Copies a histogram that its thread goes on to change: the latencies of about one moment.
  [[nodiscard]] histogram snapshot() const;
  /// Returns the latencies since `before`, an earlier snapshot; its longest up to a bucket's width.
  [[nodiscard]] histogram since(const histogram& before) const;
  /// Calls `each(low, top, count)`, in nanoseconds, for the buckets that are not empty, ascending.
  template <class Each>
  void each_bucket(Each each) const {
    for (std::size_t i = 0; i < counts_.size(); ++i)
      if (counts_[i] != 0) each(i == 0 ? 0 : top_of(i - 1) + 1, top_of(i), counts_[i]);
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return count_; }
  [[nodiscard]] std::chrono::nanoseconds max() const noexcept;
  [[nodiscard]] std::chrono::nanoseconds mean() const noexcept;
  /// The shortest time within which a `part` (0 to 1) of all ended. 0 of an empty one.
  [[nodiscard]] std::chrono::nanoseconds at(double part) const noexcept;

 private:
  /// Relaxed: one thread writes, and a reader wants numbers for people.
  static void increase(std::uint64_t& number, std::uint64_t by) noexcept {
    std::atomic_ref{number}.store(number + by, std::memory_order_relaxed);
  }
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
