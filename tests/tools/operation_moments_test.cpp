#include "perf/operation_moments.hpp"

#include "group/ranks.hpp"
#include "perf/collective_report.hpp"

#include <catch2/catch.hpp>

#include <string>

using cordma::test::ranks;

namespace {

/// A rank that begins and ends two operations later than the ranks before it.
perf::operation_moments moments_of(unsigned rank) {
  return {.begun = {100 + 10 * rank, 1000 + rank}, .ended = {101 + 20 * rank, 1001 + 30 * rank}};
}

}  // namespace

TEST_CASE("the time of an operation is from the first rank's begin to the last one's end",
          "[tools][device]") {
  ranks all{3};
  const std::string wrong = all.run([](cordma::group& g) -> cordma::task<> {
    perf::operation_moments moments = moments_of(g.rank());
    const double mean = co_await moments.mean_of_all(g);
    cordma::test::expect(mean == (41 + 61) / 2.0, "a mean of " + std::to_string(mean));
  });
  CHECK(wrong == "");
}

TEST_CASE("a rank that has no clock in common with others has times of its own", "[tools]") {
  CHECK(moments_of(2).mean_of_own() == (21 + 59) / 2.0);
  CHECK(perf::operation_moments{}.mean_of_own() == 0);
}

TEST_CASE("times of ranks on several hosts are said to be each rank's own", "[tools]") {
  CHECK_THAT(perf::collectives_head(false), Catch::StartsWith("several hosts, no common clock: "));
  CHECK_THAT(perf::collectives_head(true), Catch::StartsWith("operation "));
}
