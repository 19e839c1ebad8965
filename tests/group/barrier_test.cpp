#include "group/trial.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("barrier by dissemination is right on 1 to 17 ranks, in and out of place", "[group]") {
  CHECK(model::problem_of(collective_kind::barrier, "dissemination") == "");
}

TEST_CASE("a barrier ends on no rank before the last one has come", "[group]") {
  const std::vector<std::uint64_t> numbers{1, 1, 1, 2, 2, 3, 3, 3, 3};
  const host_map hosts{numbers};
  const algorithm_table table;
  for (unsigned ranks = 2; ranks <= 9; ++ranks)
    for (unsigned last = 0; last < ranks; ++last)
      CHECK(model::ended_early({.kind = collective_kind::barrier, .ranks = ranks}, last, table) ==
            0);
  for (unsigned last = 0; last < 9; ++last)
    CHECK(model::ended_early({.kind = collective_kind::barrier, .ranks = 9, .hosts = &hosts}, last,
                             table) == 0);
}
