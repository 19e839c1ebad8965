// The examples in C run as a user would run them, and print what they should.

#include "scenario/folders.hpp"
#include "support/commands.hpp"

#include <catch2/catch.hpp>
#include <cstdlib>
#include <string>

using cordma::test::outcome;
using cordma::test::run;

namespace {

/// Runs a server and its clients; `both` are arguments of all, and `own` those of the clients.
outcome run_c_processes(const std::string& name, int clients, const std::string& both = "") {
  return run(CORDMA_SOURCE_FOLDER "/examples/processes " + both +
             " " CORDMA_BUILD_FOLDER "/examples/" + name + " " + std::getenv("CORDMA_TEST_DEVICE") +
             " " + std::to_string(clients));
}

}  // namespace

TEST_CASE("c_all_to_all exchanges blocks between a server and two clients", "[scenario][device]") {
  const outcome ran = run_c_processes("c_all_to_all", 2);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  for (const char* member : {"0", "1", "2"})
    CHECK_THAT(ran.output, Catch::Contains(std::string{"member "} + member +
                                           ": 100 rounds with 3 members: all blocks are right"));
}

TEST_CASE("c_all_to_all exchanges blocks between many members", "[scenario][device]") {
  const outcome ran = run_c_processes("c_all_to_all", 12, "--both 12");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("member 12: 100 rounds with 13 members"));
}

TEST_CASE("c_all_to_all says what is wrong with its arguments and its server",
          "[scenario][device]") {
  const std::string program = CORDMA_BUILD_FOLDER "/examples/c_all_to_all ";
  CHECK(run(program).exit_status == 2);
  CHECK(run(program + "server '' 64").exit_status == 2);
  const outcome ran =
      run(program + "client unix:@cordma-c-nobody " + std::getenv("CORDMA_TEST_DEVICE"));
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Catch::Contains("Connection refused"));
}

TEST_CASE("c_callbacks transfers by callbacks, and by blocking calls beside them",
          "[scenario][device]") {
  const outcome ran = run_c_processes("c_callbacks", 1);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("server: received 'hello'\n") &&
                             Catch::Contains("server: received 'hello' with 42") &&
                             Catch::Contains("server: the client wrote 'written by a callback', "
                                             "and said 43") &&
                             Catch::Contains("server: the client has left: disconnected"));
  CHECK_THAT(ran.output,
             Catch::Contains("client: posted requests read back 'written by a callback'") &&
                 Catch::Contains("client: blocking calls read back 'written by a blocking call'"));
}
