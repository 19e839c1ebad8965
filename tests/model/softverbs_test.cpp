#include "explorations.hpp"
#include "support/soak.hpp"

#include <catch2/catch.hpp>

// The classes of softverbs.

TEST_CASE("nobody reaches memory by a key behind its revocation in any order", "[model]") {
  CHECK(model::found_by(model::explorations_of_keys()) == "");
}

TEST_CASE("no side of a ring sleeps for ever in any order", "[model]") {
  CHECK(model::found_by(model::explorations_of_ring()) == "");
}

TEST_CASE("no work of a node is forgotten in any order", "[model]") {
  CHECK(model::found_by(model::explorations_of_engine()) == "");
}

TEST_CASE("random orders of softverbs' classes have no finding", "[.soak-model][model]") {
  const std::uint64_t runs = cordma::test::soak::count(1'000'000);
  const std::uint64_t seed = cordma::test::soak::seed();
  for (const auto& all : {model::explorations_of_keys(), model::explorations_of_ring(),
                          model::explorations_of_engine()})
    CHECK(model::found_at_random(all, runs, seed) == "");
}
