#include "sim/shrink.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <vector>

using namespace cordma;
using sim::detail::decision_kind;
using sim::detail::plan;
using sim::detail::shrink;
using sim::detail::trial;

namespace {

/// A run that shows its fault if these decisions are kept.
struct artificial_run {
  std::vector<std::uint64_t> needed_faults{};
  std::vector<std::uint64_t> needed_delays{};
  std::vector<std::uint64_t> needed_steps{};
  std::uint64_t faults = 100;
  unsigned tries = 0;

  trial operator()(const plan& p) {
    ++tries;
    const auto are_kept = [&](decision_kind kind, const std::vector<std::uint64_t>& all) {
      return std::ranges::all_of(all, [&](std::uint64_t one) { return p.of(kind).contains(one); });
    };
    trial made{.is_found = are_kept(decision_kind::fault, needed_faults) &&
                           are_kept(decision_kind::network, needed_delays) &&
                           are_kept(decision_kind::schedule, needed_steps),
               .decisions_made = {1000, 640, 50},
               .faults_happened = {}};
    for (std::uint64_t n = 0; n < faults; ++n)
      if (p.of(decision_kind::fault).contains(3 * n)) made.faults_happened.push_back(3 * n);
    return made;
  }
  plan least(unsigned tries_max = 400) {
    const trial all = (*this)({});
    tries = 0;
    return shrink(all, tries_max, [this](const plan& p) { return (*this)(p); });
  }
};

}  // namespace

TEST_CASE("a run that needs no decision is shrunk to none, in a try for each kind", "[sim]") {
  artificial_run run;
  CHECK(run.least().text() == "fault=none network=none schedule=none");
  CHECK(run.tries == 3);
}

TEST_CASE("the one fault that a run needs is found among many", "[sim]") {
  artificial_run run{.needed_faults = {207}};
  CHECK(run.least().text() == "fault=207 network=none schedule=none");
  CHECK(run.tries < 40);
}

TEST_CASE("two faults are found that a run needs together", "[sim]") {
  artificial_run run{.needed_faults = {3, 294}};
  CHECK(run.least().text() == "fault=3,294 network=none schedule=none");
}

TEST_CASE("faults that are all needed are named in the plan", "[sim]") {
  artificial_run one{.needed_faults = {0}, .faults = 1};
  CHECK(one.least().text() == "fault=0 network=none schedule=none");
  artificial_run two{.needed_faults = {0, 3}, .faults = 2};
  CHECK(two.least().text() == "fault=0,3 network=none schedule=none");
}

TEST_CASE("delays and steps are taken back in parts, which are kept where they are needed",
          "[sim]") {
  artificial_run run{.needed_faults = {30}, .needed_delays = {5, 639}, .needed_steps = {17}};
  CHECK(run.least().text() == "fault=30 network=0-9,630-639 schedule=17");
}

TEST_CASE("a shrunk plan shows the fault also when the tries are over", "[sim]") {
  for (unsigned most = 0; most < 60; ++most) {
    artificial_run run{.needed_faults = {3, 294}, .needed_delays = {100}};
    const plan made = run.least(most);
    CHECK(run.tries <= most);
    CHECK(run(made).is_found);
  }
}
