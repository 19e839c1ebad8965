#pragma once

#include "bench.hpp"
#include "stack_offsets.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <vector>

namespace bench {

inline double median(std::vector<double> of) {
  if (of.empty()) return 0;
  const auto middle = of.begin() + std::ptrdiff_t(of.size() / 2);
  std::nth_element(of.begin(), middle, of.end());
  return *middle;
}

inline double ns_of(const work& w, std::uint64_t n) {
  const auto start = std::chrono::steady_clock::now();
  w(n);
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
}

/// Compares as `recorder::compare` does, for work that must be done `n` times at once. A round is
/// as long on both sides, however slow the machine was when the first was measured.
inline void compare_rounds(recorder& to, std::string_view which, std::uint64_t n, int rounds,
                           const work& baseline, const work& ours) {
  std::vector<double> theirs, own;
  baseline(n);  // Warm.
  ours(n);
  for (int i = 0; i < rounds; ++i) {
    at_offset(std::uint64_t(i) * 3, [&] {
      theirs.push_back(ns_of(baseline, n) / double(n));
      own.push_back(ns_of(ours, n) / double(n));
    });
  }
  to.count(which, "time p50", "ns/op", median(own), median(theirs));
}

}  // namespace bench
