// Every example and the demo run as a user would run them, and print what they should.

#include "scenario/folders.hpp"

#include <sys/wait.h>

#include <array>
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace {

struct outcome {
  int exit_status = -1;
  std::string output;  // Of stdout and stderr.
};

outcome run(const std::string& command) {
  outcome result;
  FILE* const pipe = ::popen((command + " 2>&1").c_str(), "r");
  REQUIRE(pipe != nullptr);
  std::array<char, 4096> chunk;
  while (const std::size_t n = std::fread(chunk.data(), 1, chunk.size(), pipe)) {
    result.output.append(chunk.data(), n);
  }
  const int status = ::pclose(pipe);
  result.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return result;
}

outcome run_example(const std::string& name) {
  return run(CORDMA_BUILD_FOLDER "/examples/" + name);
}

std::string device() { return std::getenv("CORDMA_TEST_DEVICE"); }

/// A server and its clients.
outcome run_processes(const std::string& name, int clients) {
  return run(CORDMA_SOURCE_FOLDER "/examples/processes " CORDMA_BUILD_FOLDER "/examples/" + name +
             " " + device() + " " + std::to_string(clients));
}

}  // namespace

TEST_CASE("example 01 awaits tasks side by side and reports a failure", "[scenario]") {
  const outcome ran = run_example("01_task");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("side by side: 4 and 9"));
  CHECK_THAT(ran.output, Catch::Contains("it failed: fail_politely: refused by the peer"));
  CHECK_THAT(ran.output, Catch::Contains("worker 3"));
}

TEST_CASE("example 02 sleeps, times out and stops", "[scenario]") {
  const outcome ran = run_example("02_timer_and_stop");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("sleeper 1 was first"));
  CHECK_THAT(ran.output, Catch::Contains("deadline passed"));
  CHECK_THAT(ran.output, Catch::Contains("ticked, and was stopped"));
}

TEST_CASE("example 03 without a device of that name says which there are", "[scenario]") {
  const outcome ran = run_example("03_device_info no_such_device");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Catch::Contains("no such RDMA device"));
}

TEST_CASE("example 03 shows the device, its limits and its GIDs", "[scenario][device]") {
  const outcome ran = run_example("03_device_info " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("found " + device()));
  CHECK_THAT(ran.output, Catch::Contains("queue pairs"));
  CHECK_THAT(ran.output, Catch::Contains("chosen: GID"));
}

TEST_CASE("example 04 exchanges messages, with and without an immediate", "[scenario][device]") {
  const outcome ran = run_example("04_send_recv " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("server got 'hello'\n"));
  CHECK_THAT(ran.output, Catch::Contains("server got 'hello again' with immediate 42"));
  CHECK_THAT(ran.output, Catch::Contains("client got 'goodbye'"));
}

TEST_CASE("example 05 writes, reads and counts in the peer's memory", "[scenario][device]") {
  const outcome ran = run_example("05_read_write_atomics " + device());
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("read back what it wrote: yes"));
  CHECK_THAT(ran.output, Catch::Contains("counter was 0, then 7, and is 100"));
  CHECK_THAT(ran.output, Catch::Contains("a batch wrote 8, read 8 and found 100"));
  CHECK_THAT(ran.output, Catch::Contains("server: immediate 2026, memory starts with 0xc0"));
}

TEST_CASE("example 06 asks its peer for memory and hands it over", "[scenario][device]") {
  const outcome ran = run_processes("06_remote_memory", 1);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("client: has 16 bytes of the server's for 2"));
  CHECK_THAT(ran.output, Catch::Contains("client: handed it over"));
  CHECK_THAT(ran.output, Catch::Contains("server: was given 16 bytes, the first word is 42"));
}

TEST_CASE("example 07 counts exactly, by a spin lock and by fetch_add", "[scenario][device]") {
  const outcome ran = run_processes("07_shared_counter", 3);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("client 3: added 1000 to each"));
  CHECK_THAT(ran.output, Catch::Contains("owner: 3000 under the lock, 3000 by fetch_add"));
}

TEST_CASE("a benchmark writes its figures as an array of objects with the promised keys",
          "[scenario]") {
  const outcome ran = run(CORDMA_BUILD_FOLDER "/bench/bench_coro coro/timer --json /dev/stdout");
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  for (const char* key : {"bench", "case", "metric", "unit", "value", "baseline", "ratio"}) {
    CHECK_THAT(ran.output, Catch::Contains('"' + std::string{key} + "\": "));
  }
  CHECK_THAT(ran.output, Catch::Contains("\n[\n  {") && Catch::EndsWith("}\n]\n"));
}

TEST_CASE("the demo's two processes move data and print what happened", "[scenario][device]") {
  const outcome ran = run(CORDMA_SOURCE_FOLDER "/examples/demo " CORDMA_BUILD_FOLDER);
  INFO(ran.output);
  CHECK(ran.exit_status == 0);
  CHECK_THAT(ran.output, Catch::Contains("device " + device()));
  CHECK_THAT(ran.output, Catch::Contains("[server] received 'hello from the client'"));
  CHECK_THAT(ran.output, Catch::Contains("read back 'written by RDMA'"));
  CHECK_THAT(ran.output, Catch::Contains("before 0, after 42"));
  CHECK_THAT(ran.output, Catch::Contains("1000 writes of 8 bytes: p50"));
  CHECK_THAT(ran.output, Catch::Contains("bytes in use"));
  CHECK_THAT(ran.output, Catch::Contains("of its memory back, with 'handed over'"));
  CHECK_THAT(ran.output, Catch::Contains("is back (expired), and holds 'in time'"));
  CHECK_THAT(ran.output, Catch::Contains("refused by its own side: post_send"));
  CHECK_THAT(ran.output, Catch::Contains("refused by the server's device, "));
  CHECK_THAT(ran.output, Catch::Contains("the first connection goes on: the counter is 42"));
  CHECK_THAT(ran.output, Catch::Contains("its memory holds 'written by RDMA'"));
}

TEST_CASE("the demo's client says when no server is there", "[scenario][device]") {
  // Port 1 is privileged, and nothing listens there.
  const outcome ran = run_example("cordma-demo client 127.0.0.1:1");
  INFO(ran.output);
  CHECK(ran.exit_status == 1);
  CHECK_THAT(ran.output, Catch::Contains("127.0.0.1:1") && Catch::Contains("refused"));
}
