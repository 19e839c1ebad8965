#pragma once

#include "bench.hpp"
#include "rounds.hpp"
#include "stack_offsets.hpp"

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
  /// In nanoseconds.
  [[nodiscard]] double quantile(double q) { return quantile(all_, q); }
  /// The median of each round; before `quantile`, which sorts them all.
  [[nodiscard]] std::vector<double> medians() const {
    const auto counted = std::ptrdiff_t(round_ - unsettled_);
    std::vector<double> all;
    for (auto from = all_.begin(); all_.end() - from >= counted; from += counted) {
      std::vector<std::uint32_t> one{from, from + counted};
      all.push_back(quantile(one, 0.5));
    }
    return all;
  }

 private:
  /// A clock may tick in steps that are longer than the differences of interest. Each value thus
  /// stands for the middle of those that have it, and quantiles between these are interpolated.
  static double quantile(std::vector<std::uint32_t>& of, double q) {
    std::ranges::sort(of);
    const double rank = q * double(of.size());
    double middle_before = 0, before = of.empty() ? 0 : of.front();
    for (auto same = of.cbegin(); same != of.cend();) {
      const auto next = std::upper_bound(same, of.cend(), *same);
      const double value = *same;
      const double middle = double((same - of.cbegin()) + (next - of.cbegin())) / 2;
      if (middle >= rank)
        return before + (value - before) * (rank - middle_before) / (middle - middle_before);
      middle_before = middle;
      before = value;
      same = next;
    }
    return before;
  }

  std::uint64_t round_, unsettled_, left_unsettled_ = 0;
  std::chrono::steady_clock::time_point last_{};
  std::vector<std::uint32_t> all_;
};

/// The number of operations, and the portions in which they are measured.
struct laps {
  std::uint64_t round, rounds, unsettled;
};

/// Does `baseline(latencies)` and `ours(latencies)` in turn, and records times of single
/// operations. The figures are the most that the quickest tenth takes, the medians and the 99th
/// percentiles. The quickest tenth is not hidden by the work of others on these processors. One
/// more figure is the typical ratio of our median of a round to the baseline's of the same moment:
/// the machine's phases change both. Gives our median, in nanoseconds.
template <class Baseline, class Ours>
double compare_latencies(recorder& to, std::string_view which, const laps& l, Baseline baseline,
                         Ours ours) {
  latencies theirs{l.round, l.rounds, l.unsettled}, own{l.round, l.rounds, l.unsettled};
  for (std::uint64_t i = 0; i < l.rounds; ++i) {
    at_offset(i, [&] {
      // The sides take turns at being the first: what one leaves behind is shared out.
      if (i % 2 == 0) baseline(theirs);
      ours(own);
      if (i % 2 != 0) baseline(theirs);
    });
  }
  std::vector<double> ratios = own.medians();
  const std::vector<double> beside = theirs.medians();
  for (std::size_t i = 0; i < ratios.size(); ++i) ratios[i] /= beside[i];
  to.count(which, "latency p10", "ns", own.quantile(0.1), theirs.quantile(0.1));
  to.count(which, "latency p50", "ns", own.quantile(0.5), theirs.quantile(0.5));
  to.count(which, "latency p99", "ns", own.quantile(0.99), theirs.quantile(0.99));
  to.count(which, "p50 by rounds", "", median(std::move(ratios)), 1);
  return own.quantile(0.5);
}

}  // namespace bench
