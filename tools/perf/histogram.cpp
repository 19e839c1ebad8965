#include "histogram.hpp"

#include <algorithm>
#include <cmath>

namespace perf {

void histogram::add(const histogram& other) noexcept {
  for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
  count_ += other.count_;
  sum_ += other.sum_;
  max_ = std::max(max_, other.max_);
}

void histogram::clear() noexcept {
  std::ranges::fill(counts_, 0);
  count_ = sum_ = max_ = 0;
}

std::chrono::nanoseconds histogram::max() const noexcept { return std::chrono::nanoseconds{max_}; }

std::chrono::nanoseconds histogram::mean() const noexcept {
  return std::chrono::nanoseconds{count_ == 0 ? 0 : sum_ / count_};
}

std::chrono::nanoseconds histogram::at(double part) const noexcept {
  const double rank = std::ceil(std::clamp(part, 0.0, 1.0) * double(count_));
  const auto wanted = std::max<std::uint64_t>(std::uint64_t(rank), 1);
  std::uint64_t seen = 0;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    seen += counts_[i];
    if (seen >= wanted) return std::chrono::nanoseconds{std::min(top_of(i), max_)};
  }
  return max();
}

}  // namespace perf
