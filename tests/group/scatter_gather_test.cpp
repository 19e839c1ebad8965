#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("scatter by binomial is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::scatter, "binomial") == "");
}
TEST_CASE("scatter by linear is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::scatter, "linear") == "");
}
TEST_CASE("gather by binomial is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::gather, "binomial") == "");
}
TEST_CASE("gather by linear is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::gather, "linear") == "");
}
