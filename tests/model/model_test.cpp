#include "explorations.hpp"
#include "support/soak.hpp"

#include <catch2/catch.hpp>

// The classes of cordma.

TEST_CASE("a mailbox loses no call and no wake-up in any order", "[model]") {
  CHECK(model::found_by(model::explorations_of_mailbox()) == "");
}

TEST_CASE("whoever visits a published list sees whole items in any order", "[model]") {
  CHECK(model::found_by(model::explorations_of_published_list()) == "");
}

TEST_CASE("memory is freed once, behind all uses, in any order", "[model]") {
  CHECK(model::found_by(model::explorations_of_memory()) == "");
}

TEST_CASE("random orders of cordma's classes have no finding", "[.soak-model][model]") {
  const std::uint64_t runs = cordma::test::soak::count(1'000'000);
  const std::uint64_t seed = cordma::test::soak::seed();
  for (const auto& all : {model::explorations_of_mailbox(), model::explorations_of_published_list(),
                          model::explorations_of_memory()})
    CHECK(model::found_at_random(all, runs, seed) == "");
}
