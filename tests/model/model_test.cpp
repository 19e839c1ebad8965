#include "explorations.hpp"
#include "support/soak.hpp"

#include <catch2/catch.hpp>

namespace {

/// Random runs of an ordinary test; the campaign has a million of each scenario.
constexpr std::uint64_t few_runs = 20'000;

void check_all(const std::vector<model::exploration>& all) {
  for (const model::exploration& one : all) {
    INFO(one.name);
    CHECK(model::found_by(one, few_runs, 1) == "");
  }
}

}  // namespace

TEST_CASE("a mailbox loses no call and no wake-up in any order", "[model]") {
  check_all(model::explorations_of_mailbox());
}

TEST_CASE("whoever visits a published list sees whole items in any order", "[model]") {
  check_all(model::explorations_of_published_list());
}

TEST_CASE("memory is freed once, behind all uses, in any order", "[model]") {
  check_all(model::explorations_of_memory());
}

TEST_CASE("no side of a ring sleeps for ever in any order", "[model]") {
  check_all(model::explorations_of_ring());
}

TEST_CASE("a million random orders of each scenario have no finding", "[.soak-model]") {
  const std::uint64_t runs = cordma::test::soak::count(1'000'000);
  const std::uint64_t seed = cordma::test::soak::seed();
  for (const auto& all : {model::explorations_of_mailbox(), model::explorations_of_published_list(),
                          model::explorations_of_memory(), model::explorations_of_ring()})
    for (const model::exploration& one : all)
      if (one.how.random_runs != 0) CHECK(model::found_by(one, runs, seed) == "");
}
