#pragma once

#include "bench.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bench {

/// How long each operation took, one after another: of many the median says what one costs, however
/// often the machine has something else to do.
class latencies {
 public:
  /// \param round  operations between which the sides of a comparison do not alternate.
  /// \param unsettled  of these the first, until both ends are awake, which do not count.
  latencies(std::uint64_t round, std::uint64_t rounds, std::uint64_t unsettled)
      : round_{round}, unsettled_{unsettled} {
    all_.reserve(round * rounds);
  }
  latencies(const latencies&) = delete;  // A copy would have no room.
  latencies(latencies&&) noexcept = default;
  [[nodiscard]] std::uint64_t round() const noexcept { return round_; }
  void start() noexcept {
    left_unsettled_ = unsettled_;
    last_ = std::chrono::steady_clock::now();
  }
  /// An operation begins that did not when the last ended.
  void begin() noexcept { last_ = std::chrono::steady_clock::now(); }
  /// An operation ended, and the next begins.
  void lap() noexcept {
    const auto now = std::chrono::steady_clock::now();
    const auto took = std::chrono::nanoseconds{now - last_}.count();
    last_ = now;
    if (left_unsettled_ > 0) {
      --left_unsettled_;
    } else if (all_.size() < all_.capacity()) {
      all_.push_back(std::uint32_t(std::min<std::int64_t>(took, UINT32_MAX)));
    }
  }
  /// In nanoseconds. A clock may tick in steps that are longer than what is to be told apart: each
  /// value stands for the middle of those that have it, and between these it is interpolated.
  [[nodiscard]] double quantile(double q) {
    std::ranges::sort(all_);
    const double rank = q * double(all_.size());
    double middle_before = 0, before = all_.empty() ? 0 : all_.front();
    for (auto same = all_.cbegin(); same != all_.cend();) {
      const auto next = std::upper_bound(same, all_.cend(), *same);
      const double value = *same;
      const double middle = double((same - all_.cbegin()) + (next - all_.cbegin())) / 2;
      if (middle >= rank)
        return before + (value - before) * (rank - middle_before) / (middle - middle_before);
      middle_before = middle;
      before = value;
      same = next;
    }
    return before;
  }

 private:
  std::uint64_t round_, unsettled_, left_unsettled_ = 0;
  std::chrono::steady_clock::time_point last_{};
  std::vector<std::uint32_t> all_;
};

/// How many, and in what portions.
struct laps {
  std::uint64_t round, rounds, unsettled;
};

/// Does `baseline(latencies)` and `ours(latencies)` in turn and records the medians of single
/// operations, what the quickest tenth takes at most (where others use the processors too, this is
/// what their work does not hide), and the 99th percentiles. Gives our median, in nanoseconds.
template <class Baseline, class Ours>
double compare_latencies(recorder& to, std::string_view which, const laps& l, Baseline baseline,
                         Ours ours) {
  latencies theirs{l.round, l.rounds, l.unsettled}, own{l.round, l.rounds, l.unsettled};
  for (std::uint64_t i = 0; i < l.rounds; ++i) {
    // Neither is always the first: what the other leaves behind is shared out.
    if (i % 2 == 0) baseline(theirs);
    ours(own);
    if (i % 2 != 0) baseline(theirs);
  }
  to.count(which, "latency p10", "ns", own.quantile(0.1), theirs.quantile(0.1));
  to.count(which, "latency p50", "ns", own.quantile(0.5), theirs.quantile(0.5));
  to.count(which, "latency p99", "ns", own.quantile(0.99), theirs.quantile(0.99));
  return own.quantile(0.5);
}

}  // namespace bench
