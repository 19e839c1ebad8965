// The examples of groups run as several ranks, by variables and under mpirun.

#include "group/reserved_port.hpp"
#include "scenario/folders.hpp"
#include "support/commands.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <sstream>
#include <string>

using cordma::test::outcome;
using cordma::test::run;

namespace {

constexpr const char* examples = CORDMA_BUILD_FOLDER "/examples/";

std::string test_device() { return std::getenv("CORDMA_TEST_DEVICE"); }

outcome run_ranks(unsigned ranks, const std::string& name, const std::string& arguments = "") {
  return run(CORDMA_SOURCE_FOLDER "/examples/ranks " + std::to_string(ranks) + " " + examples +
             name + " " + test_device() + " " + arguments);
}

void check_ring(const outcome& ran, unsigned ranks) {
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  for (unsigned r = 0; r < ranks; ++r) {
    const std::string before = std::to_string((r + ranks - 1) % ranks);
    CHECK_THAT(ran.output,
               Catch::Contains("rank " + std::to_string(r) + " heard 'hello from rank " + before +
                               "' from rank " + before + "\n"));
  }
  CHECK_THAT(ran.output, Catch::Contains(std::to_string(ranks) + " ranks have said hello\n"));
}

}  // namespace

TEST_CASE("example 13 says hello around a ring of ranks", "[scenario][device]") {
  for (const unsigned ranks : {1u, 2u, 4u}) check_ring(run_ranks(ranks, "13_ring_hello"), ranks);
}

TEST_CASE("example 13 runs by torchrun's variables", "[scenario][device]") {
  const cordma::test::reserved_port meeting;
  check_ring(run("export WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=" +
                 std::to_string(meeting.number()) + "; RANK=1 " + examples + "13_ring_hello " +
                 test_device() + " & RANK=0 " + examples + "13_ring_hello " + test_device() +
                 " && wait $!"),
             2);
}

TEST_CASE("example 13 runs under mpirun", "[scenario][device]") {
  if (run("mpirun --version").exit_status != 0) CORDMA_SKIP("there is no mpirun");
  check_ring(run("OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
                 "mpirun --oversubscribe -n 4 " +
                 std::string{examples} + "13_ring_hello " + test_device()),
             4);
}

TEST_CASE("example 13 is a group of one where nothing launches it", "[scenario][device]") {
  const outcome ran = run(std::string{examples} + "13_ring_hello " + test_device());
  check_ring(ran, 1);
  CHECK_THAT(ran.output, Catch::Contains("a group of one"));
}

TEST_CASE("example 14 counts each number of each rank once", "[scenario][device]") {
  for (const unsigned ranks : {1u, 2u, 4u}) {
    const outcome ran = run_ranks(ranks, "14_histogram", "10000");
    INFO(ran.output);
    CHECK(ran.exit_status == 0);
    std::istringstream lines{ran.output};
    unsigned counted = 0;
    unsigned value = 0;
    for (unsigned v = 0, count = 0; v < 4 * ranks && lines >> value >> count; ++v) {
      CHECK(value == v);
      counted += count;
      std::string bar;
      std::getline(lines, bar);
    }
    CHECK(counted == 10'000 * ranks);
    CHECK_THAT(ran.output, Catch::Contains(std::to_string(counted) + " numbers of " +
                                           std::to_string(ranks) + " ranks, none lost\n"));
  }
}

TEST_CASE("example 15 learns the same weights on each rank", "[scenario][device]") {
  for (const unsigned ranks : {1u, 2u, 4u}) {
    const outcome ran = run_ranks(ranks, "15_training");
    INFO(ran.output);
    CHECK(ran.exit_status == 0);
    CHECK_THAT(ran.output, Catch::Contains("step 200: mean squared error 0.0001"));
    CHECK_THAT(ran.output,
               Catch::Contains(std::to_string(ranks) +
                               " ranks have the same weights: 3.00 -2.00 0.50, bias 7.00\n"));
  }
}

TEST_CASE("the demo of a group runs its examples as so many ranks", "[scenario][device]") {
  const outcome ran = run(CORDMA_SOURCE_FOLDER "/examples/demo_group " CORDMA_BUILD_FOLDER " " +
                          test_device() + " 3");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("3 ranks have said hello\n"));
  CHECK_THAT(ran.output, Catch::Contains("300000 numbers of 3 ranks, none lost\n"));
  CHECK_THAT(ran.output, Catch::EndsWith("3 ranks have the same weights: 3.00 -2.00 0.50, bias "
                                         "7.00\n"));
}

TEST_CASE("a group's run fails when a rank does, and says which program is missing",
          "[scenario][device]") {
  const outcome failed = run(CORDMA_SOURCE_FOLDER "/examples/ranks 2 " + std::string{examples} +
                             "13_ring_hello no_such_device");
  CHECK(failed.exit_status == 1);
  CHECK_THAT(failed.output, Catch::Contains("no such RDMA device"));
  const outcome missing = run(CORDMA_SOURCE_FOLDER "/examples/ranks 2 no/such/program");
  CHECK(missing.exit_status == 1);
  CHECK_THAT(missing.output, Catch::Contains("no no/such/program: build first"));
}
