#include "perf/histogram.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

using perf::histogram;
using std::chrono::nanoseconds;

namespace {

/// The values that a random walk over all magnitudes gives, always the same.
std::vector<std::int64_t> values(std::size_t count) {
  std::vector<std::int64_t> all;
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    all.push_back(std::int64_t((state >> 20) >> (state >> 59)));  // numbers of up to 44 bits
  }
  return all;
}

std::int64_t exact(const std::vector<std::int64_t>& sorted, double part) {
  const auto rank = std::size_t(std::ceil(part * double(sorted.size())));
  return sorted[std::max<std::size_t>(rank, 1) - 1];
}

}  // namespace

TEST_CASE("a percentile is never below the exact one, and at most a 128th above it", "[tools]") {
  std::vector<std::int64_t> all = values(20'000);
  std::erase_if(all, [](std::int64_t v) { return v >= std::int64_t{1} << histogram::value_bits; });
  histogram h;
  for (const std::int64_t v : all) h.add(nanoseconds{v});
  std::ranges::sort(all);
  for (const double part : {0.0, 0.001, 0.1, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1.0}) {
    INFO(part);
    const std::int64_t is = exact(all, part);
    CHECK(h.at(part).count() >= is);
    CHECK(double(h.at(part).count()) <= double(is) * (1 + 1.0 / double(histogram::parts)));
  }
}

TEST_CASE("each power of two, and its neighbours, keep within the bound", "[tools]") {
  for (unsigned bits = 0; bits < histogram::value_bits; ++bits) {
    for (const std::int64_t off : {-1, 0, 1}) {
      const std::int64_t v = (std::int64_t{1} << bits) + off;
      INFO(v);
      histogram h;
      h.add(nanoseconds{v});
      h.add(nanoseconds{v * 8});  // The maximum must be another.
      CHECK(h.at(0.5).count() >= v);
      CHECK(h.at(0.5).count() <= v + v / std::int64_t(histogram::parts));
    }
  }
}

TEST_CASE("short times and the longest are exact", "[tools]") {
  histogram h;
  for (int i = 0; i < 128; ++i) h.add(nanoseconds{i});
  CHECK(h.at(0.5).count() == 63);
  h.add(nanoseconds{1'234'567});
  CHECK(h.max().count() == 1'234'567);
  CHECK(h.at(1).count() == 1'234'567);
}

TEST_CASE("percentiles are in order", "[tools]") {
  histogram h;
  for (const std::int64_t v : values(1000)) h.add(nanoseconds{v});
  nanoseconds before{0};
  for (int i = 0; i <= 1000; ++i) {
    const nanoseconds now = h.at(double(i) / 1000);
    CHECK(now >= before);
    before = now;
  }
  CHECK(before <= h.max());
}

TEST_CASE("an empty histogram is all zero", "[tools]") {
  const histogram h;
  CHECK(h.count() == 0);
  CHECK(h.at(0.99).count() == 0);
  CHECK(h.max().count() == 0);
  CHECK(h.mean().count() == 0);
}

TEST_CASE("times before zero and beyond the range count as the nearest", "[tools]") {
  histogram h;
  h.add(nanoseconds{-5});
  CHECK(h.at(1).count() == 0);
  const nanoseconds long_ago = std::chrono::hours{24 * 365};
  h.add(long_ago);
  CHECK(h.count() == 2);
  CHECK(h.max() == long_ago);
}

TEST_CASE("histograms add up", "[tools]") {
  histogram all, odd, even;
  const std::vector<std::int64_t> some = values(999);
  for (std::size_t i = 0; i < some.size(); ++i) {
    all.add(nanoseconds{some[i]});
    (i % 2 == 0 ? even : odd).add(nanoseconds{some[i]});
  }
  even.add(odd);
  CHECK(even.count() == all.count());
  CHECK(even.mean() == all.mean());
  CHECK(even.max() == all.max());
  for (const double part : {0.1, 0.5, 0.99}) CHECK(even.at(part) == all.at(part));
  even.clear();
  CHECK(even.count() == 0);
  CHECK(even.at(1).count() == 0);
}

TEST_CASE("a snapshot since an earlier one has what was added between", "[tools]") {
  histogram h;
  h.add(nanoseconds{5'000'000});
  h.add(nanoseconds{10});
  const histogram before = h.snapshot();
  h.add(nanoseconds{10});
  h.add(nanoseconds{2'000});
  const histogram later = h.snapshot().since(before);
  CHECK(later.count() == 2);
  CHECK(later.at(0.5).count() == 10);
  CHECK(later.max().count() >= 2'000);
  CHECK(later.max().count() <= 2'000 + 2'000 / std::int64_t(histogram::parts));
  CHECK(later.mean().count() == 1'005);
  CHECK(h.snapshot().since(h.snapshot()).count() == 0);
}

TEST_CASE("buckets come in order, without gaps between values, and hold all", "[tools]") {
  histogram h;
  const std::vector<std::int64_t> all = values(5'000);
  for (const std::int64_t v : all) h.add(nanoseconds{v});
  std::uint64_t seen = 0, before = 0;
  h.each_bucket([&](std::uint64_t low, std::uint64_t top, std::uint64_t count) {
    REQUIRE(low <= top);
    REQUIRE((seen == 0 || low > before));
    REQUIRE(count > 0);
    const auto inside = std::ranges::count_if(
        all, [=](std::int64_t v) { return std::uint64_t(v) >= low && std::uint64_t(v) <= top; });
    if (top < (std::uint64_t{1} << histogram::value_bits) - 1)
      REQUIRE(std::uint64_t(inside) == count);
    seen += count;
    before = top;
  });
  CHECK(seen == all.size());
}
