#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("broadcast by binomial is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::broadcast, "binomial") == "");
}
TEST_CASE("broadcast by chain is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::broadcast, "chain") == "");
}
TEST_CASE("broadcast by scatter_all_gather is right on 1 to 17 ranks, in and out of place",
          "[group]") {
  CHECK(model::problem_of(collective_kind::broadcast, "scatter_all_gather") == "");
}
