#include "scenarios.hpp"

#include <catch2/catch.hpp>

#include <cstdint>

using namespace cordma;

namespace {

constexpr std::uint64_t seeds_of_each = 3;

void play(const sim::scenario& s, const sim::faults& wanted) {
  for (std::uint64_t seed = 1; seed <= seeds_of_each; ++seed) {
    INFO("seed " << seed);
    sim::world w{seed, wanted};
    CHECK_NOTHROW(s.play(w));
  }
}

}  // namespace

TEST_CASE("the first seeds of all scenarios find nothing", "[sim]") {
  for (const sim::scenario& s : test::all_scenarios()) {
    INFO(s.name);
    play(s, sim::faults::none());
    play(s, sim::faults::harsh());
    if (s.is_robust) play(s, sim::faults::hostile());
    if (s.survives_bad_alloc) play(s, sim::faults::scarce());
  }
}
