#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("barrier by dissemination is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::barrier, "dissemination") == "");
}
