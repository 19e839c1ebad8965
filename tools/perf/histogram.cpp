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
  for (std::uint64_t& n : counts_) std::atomic_ref{n}.store(0, std::memory_order_relaxed);
  for (std::uint64_t* n : {&count_, &sum_, &max_})
    std::atomic_ref{*n}.store(0, std::memory_order_relaxed);
}

histogram histogram::snapshot() const {
  const auto read = [](const std::uint64_t& n) {
    // An atomic_ref of C++20 takes no const.
    return std::atomic_ref{const_cast<std::uint64_t&>(n)}.load(std::memory_order_relaxed);
  };
  histogram now;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    now.counts_[i] = read(counts_[i]);
    now.count_ += now.counts_[i];
  }
  now.sum_ = read(sum_);
  now.max_ = read(max_);
  return now;
}

histogram histogram::since(const histogram& before) const {
  histogram later;
  for (std::size_t i = 0; i < counts_.size(); ++i) {
    later.counts_[i] = counts_[i] - std::min(before.counts_[i], counts_[i]);
    later.count_ += later.counts_[i];
    if (later.counts_[i] != 0) later.max_ = std::min(top_of(i), max_);
  }
  later.sum_ = sum_ - std::min(before.sum_, sum_);
  return later;
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
