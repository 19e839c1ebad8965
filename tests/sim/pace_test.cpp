#include "sim/pace.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace cordma;
using sim::detail::decision_kind;
using sim::detail::decisions;
using sim::detail::pace;
using sim::detail::plan;

namespace {

constexpr unsigned actors = 12;
constexpr duration base_max{2000};

/// Times of the steps that actors do in turn.
std::vector<duration> steps_of(std::uint64_t seed, unsigned count, const plan& kept = {}) {
  decisions schedule{seed, decision_kind::schedule, kept};
  pace p{schedule};
  std::vector<duration> times;
  for (unsigned n = 0; n < count; ++n) times.push_back(p.step_time(n % actors, schedule));
  return times;
}

/// Returns the longest of an actor's steps, as a multiple of a step without a priority.
std::int64_t slowness(const std::vector<duration>& times, unsigned actor, std::size_t first,
                      std::size_t last) {
  duration longest{};
  for (std::size_t n = first; n < last; ++n)
    if (n % actors == actor) longest = std::max(longest, times[n]);
  return (longest + base_max - duration{1}) / base_max;
}

}  // namespace

TEST_CASE("actors have priorities in half of the seeds", "[sim]") {
  unsigned with_priorities = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    const std::vector<duration> times = steps_of(seed, 10 * actors);
    if (std::ranges::max(times) > base_max) ++with_priorities;
  }
  CHECK(with_priorities > 440);
  CHECK(with_priorities < 560);
}

TEST_CASE("with priorities, an actor is fast or slow for many steps in a row", "[sim]") {
  unsigned fast = 0, slow = 0, both = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<duration> times = steps_of(seed, 200 * actors);
    for (unsigned actor = 0; actor < actors; ++actor) {
      const std::int64_t early = slowness(times, actor, 0, 100 * actors);
      const std::int64_t late = slowness(times, actor, 100 * actors, 200 * actors);
      if (early <= 1 && late <= 1) ++fast;
      if (early > 64 && late > 64) ++slow;
      if ((early <= 1) != (late <= 1)) ++both;
    }
  }
  CHECK(fast > 120);
  CHECK(slow > 10);
  CHECK(both < 20);
}

TEST_CASE("no step takes longer than half a millisecond and a little", "[sim]") {
  for (std::uint64_t seed = 0; seed < 100; ++seed)
    CHECK(std::ranges::max(steps_of(seed, 500)) <= 256 * base_max);
}

TEST_CASE("some actor changes its priority in the middle of a long run", "[sim]") {
  unsigned changed = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<duration> times = steps_of(seed, 30'000);
    for (unsigned actor = 0; actor < actors; ++actor)
      if (slowness(times, actor, 0, 2000) > 2 * slowness(times, actor, 28'000, 30'000)) ++changed;
  }
  CHECK(changed > 0);
}

TEST_CASE("some actor changes its priority early in many seeds, and late in some", "[sim]") {
  // An actor changes if it is slower by far in one part than in the other one.
  const auto changed_between = [](std::size_t first, std::size_t middle, std::size_t last) {
    unsigned seeds = 0;
    for (std::uint64_t seed = 0; seed < 400; ++seed) {
      const std::vector<duration> times = steps_of(seed, unsigned(last));
      bool changed = false;
      for (unsigned actor = 0; actor < actors; ++actor) {
        const std::int64_t early = slowness(times, actor, first, middle);
        const std::int64_t late = slowness(times, actor, middle, last);
        changed |= early > 8 * late || late > 8 * early;
      }
      seeds += changed ? 1 : 0;
    }
    return seeds;
  };
  // A conversation of two hosts has some 300 steps.
  CHECK(changed_between(0, 150, 300) > 25);
  CHECK(changed_between(8'000, 16'000, 24'000) > 10);
}

TEST_CASE("no step takes any time if a plan takes the schedule back", "[sim]") {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    CHECK(std::ranges::max(steps_of(seed, 500, plan::parse("schedule=none"))) == duration{});
}
