#include "qp/pacer.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using namespace softverbs;
using namespace std::chrono_literals;

namespace {

struct shipment {
  pacer::time when;
  std::uint64_t bytes;
};

constexpr std::uint64_t bytes_at(std::uint32_t kbps, std::chrono::nanoseconds span) {
  return static_cast<std::uint64_t>(span.count()) / 1000 * kbps / 8000;
}

/// Sends as much as may be, in pieces of at most `piece` bytes, for a second of its own clock.
std::vector<shipment> send_for_a_second(pacer& rate, std::uint64_t piece, pacer::time start) {
  std::vector<shipment> all;
  pacer::time now = start;
  while (now < start + 1s) {
    std::uint64_t left = rate.budget(now);
    for (; left >= piece; left -= piece) {
      rate.sent(piece, now);
      all.push_back({now, piece});
    }
    now = std::max(now + 10us, rate.resumes_at());
  }
  return all;
}

}  // namespace

TEST_CASE("no span of time sees more than the rate and a burst", "[qp]") {
  const std::uint32_t kbps = GENERATE(800u, 80'000u, 8'000'000u);
  const std::uint32_t burst = GENERATE(4096u, 100'000u);
  const pacer::time start{1h};
  pacer rate;
  rate.limit(kbps, burst, start);
  const std::vector<shipment> all = send_for_a_second(rate, 1000, start);
  std::uint64_t most_above = 0;
  for (std::size_t from = 0; from < all.size(); from += 1 + all.size() / 100) {
    std::uint64_t sum = 0;
    for (std::size_t to = from; to < all.size(); ++to) {
      sum += all[to].bytes;
      const std::uint64_t allowed = burst + bytes_at(kbps, all[to].when - all[from].when) + 1000;
      if (sum > allowed) most_above = std::max(most_above, sum - allowed);
    }
  }
  CHECK(most_above == 0);
}

TEST_CASE("who always has something to send reaches the rate", "[qp]") {
  const std::uint32_t kbps = GENERATE(800u, 80'000u, 8'000'000u);
  const pacer::time start{1h};
  pacer rate;
  rate.limit(kbps, 100'000, start);
  std::uint64_t sum = 0;
  for (const shipment& one : send_for_a_second(rate, 1000, start)) sum += one.bytes;
  CHECK(sum + 10'000 >= bytes_at(kbps, 1s));
}

TEST_CASE("bytes beyond the budget are a debt, which later ones wait for", "[qp]") {
  const pacer::time start{1h};
  pacer rate;
  rate.limit(8'000, 4096, start);  // A byte each microsecond.
  CHECK(rate.budget(start) == 4096);
  rate.sent(1'000'000, start);
  CHECK(rate.budget(start) == 0);
  CHECK(rate.budget(start + 995ms) == 0);
  CHECK(rate.resumes_at() == start + 1s);
  CHECK(rate.budget(start + 999ms) == 4096 - 1001);
  CHECK(rate.budget(start + 1s) == 4096);
  CHECK(rate.budget(start + 1h) == 4096);
}

TEST_CASE("a burst that is not set has 64 KiB, or what goes in a millisecond", "[qp]") {
  const pacer::time start{1h};
  pacer rate;
  rate.limit(8, 0, start);
  CHECK(rate.budget(start) == 64 * 1024);
  rate.limit(8'000'000, 0, start);
  CHECK(rate.budget(start) == 1'000'000);
}
