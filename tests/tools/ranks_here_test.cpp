#include "perf/ranks_here.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <csignal>
#include <stdexcept>

using namespace perf;
using Catch::Matchers::Contains;

namespace {

/// A rank that ends only when it is killed.
rank_outcome wait_for_ever() {
  while (true) ::pause();
}

}  // namespace

TEST_CASE("ranks that all end well tell nothing", "[tools]") {
  const pid_t here = ::getpid();
  CHECK_NOTHROW(run_ranks_here(5, [here](unsigned) -> rank_outcome {
    if (::getpid() == here) return {.exit_status = 1, .why = "this process is no rank"};
    return {};
  }));
}

TEST_CASE("a rank that fails ends those that go on", "[tools]") {
  const auto fails = [](rank_outcome how) {
    run_ranks_here(3, [&how](unsigned rank) { return rank == 1 ? how : wait_for_ever(); });
  };
  CHECK_THROWS_WITH(fails({.exit_status = 1, .why = "no device"}), "no device");
  CHECK_THROWS_AS(fails({.exit_status = 1, .why = "no device"}), std::runtime_error);
  CHECK_THROWS_AS(fails({.exit_status = misuse_status, .why = "no size"}), std::invalid_argument);
  CHECK_THROWS_WITH(fails({.exit_status = 7}), "rank 1 ended with status 7: start again");
}

TEST_CASE("a rank that is killed is named, and not what others say of it", "[tools]") {
  CHECK_THROWS_WITH(
      run_ranks_here(4,
                     [](unsigned rank) -> rank_outcome {
                       if (rank == 2) ::raise(SIGKILL);
                       if (rank == 3) wait_for_ever();
                       return {.exit_status = 1, .why = "rank 2 has left", .is_by_another = true};
                     }),
      Contains("rank 2 was ended by signal 9 (Killed)"));
}

TEST_CASE("where no rank has a reason of its own, the one that speaks is heard", "[tools]") {
  CHECK_THROWS_WITH(run_ranks_here(3,
                                   [](unsigned rank) -> rank_outcome {
                                     return {.exit_status = 1,
                                             .why = rank == 1 ? "spoken" : "silent",
                                             .is_by_another = true,
                                             .is_silent = rank != 1};
                                   }),
                    "spoken");
}
