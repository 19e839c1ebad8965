#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("all_gather by bruck is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::all_gather, "bruck") == "");
}
TEST_CASE("all_gather by doubling is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::all_gather, "recursive_doubling") == "");
}
TEST_CASE("all_gather by ring is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::all_gather, "ring") == "");
}
