#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("all_reduce by recursive_doubling is right on 1 to 17 ranks, in and out of place",
          "[group]") {
  CHECK(model::problem_of(collective_kind::all_reduce, "recursive_doubling") == "");
}
TEST_CASE("all_reduce by rabenseifner is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::all_reduce, "rabenseifner") == "");
}
TEST_CASE("all_reduce by ring is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::all_reduce, "ring") == "");
}
