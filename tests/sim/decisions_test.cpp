#include "sim/decisions.hpp"

#include <catch2/catch.hpp>

#include <cstdint>
#include <vector>

using namespace cordma;
using sim::detail::decision_kind;
using sim::detail::decision_set;
using sim::detail::decisions;
using sim::detail::plan;

namespace {

std::vector<std::uint64_t> numbers_of(const plan& p, std::uint64_t seed = 5,
                                      decision_kind kind = decision_kind::fault) {
  decisions made{seed, kind, p};
  std::vector<std::uint64_t> numbers;
  for (int n = 0; n < 200; ++n)
    numbers.push_back(n % 2 == 0 ? made.up_to(1'000'000) : made.amount(0.5, 1000));
  return numbers;
}

}  // namespace

TEST_CASE("a decision that is taken back is 0, and leaves the others as they were", "[sim]") {
  const std::vector<std::uint64_t> all = numbers_of({});
  for (const std::uint64_t gone : {0u, 1u, 80u, 81u, 199u}) {
    std::vector<decision_set::range> rest;
    if (gone > 0) rest.push_back({0, gone - 1});
    rest.push_back({gone + 1, UINT64_MAX});
    std::vector<std::uint64_t> expected = all;
    expected[gone] = 0;
    CHECK(numbers_of(plan{}.with(decision_kind::fault, decision_set{rest})) == expected);
  }
}

TEST_CASE("decisions differ by seed and by kind, and not by run", "[sim]") {
  CHECK(numbers_of({}) == numbers_of({}));
  CHECK(numbers_of({}, 5) != numbers_of({}, 6));
  CHECK(numbers_of({}, 5, decision_kind::fault) != numbers_of({}, 5, decision_kind::network));
}

TEST_CASE("a plan for one kind of decisions takes none of another kind back", "[sim]") {
  const plan no_delays = plan::parse("network=none");
  CHECK(numbers_of(no_delays) == numbers_of({}));
  CHECK(numbers_of(no_delays, 5, decision_kind::network) == std::vector<std::uint64_t>(200));
}

TEST_CASE("decisions happen by their chance, and those that do are listed", "[sim]") {
  decisions made{3, decision_kind::fault, {}};
  std::vector<std::uint64_t> happened;
  for (std::uint64_t n = 0; n < 10'000; ++n)
    if (made.happens(0.1)) happened.push_back(n);
  CHECK(happened.size() > 900);
  CHECK(happened.size() < 1100);
  CHECK(made.happened() == happened);
  CHECK(made.made() == 10'000);
}

TEST_CASE("what cannot happen is no decision, and what is certain always happens", "[sim]") {
  decisions made{3, decision_kind::fault, {}};
  CHECK_FALSE(made.happens(0));
  CHECK(made.made() == 0);
  for (int n = 0; n < 100; ++n) {
    const std::uint64_t amount = made.amount(1, 10);
    CHECK(amount >= 1);
    CHECK(amount <= 10);
  }
}
