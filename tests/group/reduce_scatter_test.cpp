#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("reduce_scatter by recursive_halving is right on 1 to 17 ranks, in and out of place",
          "[group]") {
  CHECK(model::problem_of(collective_kind::reduce_scatter, "recursive_halving") == "");
}
TEST_CASE("reduce_scatter by ring is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::reduce_scatter, "ring") == "");
}
TEST_CASE("reduce_scatter by pairwise is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::reduce_scatter, "pairwise") == "");
}
