#include "sim/workers.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdint>
#include <map>
#include <string>
#include <utility>

using namespace cordma;
using sim::detail::block_report;
using sim::detail::seed_block;
using sim::detail::workers;

namespace {

/// Fails at seed 103, dies at seed 203, exits at seed 303 and is killed at seed 403.
void end_somehow(sim::world& w) {
  if (w.seed() == 103) w.fail("seed 103 has a text");
  if (w.seed() == 203) {
    ::signal(SIGTERM, SIG_DFL);
    ::raise(SIGTERM);
  }
  if (w.seed() == 303) ::_exit(7);
  if (w.seed() == 403) ::raise(SIGKILL);
}

/// Pipe that tells who lives: its write end is open in each process.
std::array<int, 2> living{};

/// Tells by the pipe that it plays, and never ends.
void never_end(sim::world&) {
  CHECK(::write(living[1], "p", 1) == 1);
  for (;;) ::pause();
}

const sim::scenario somehow{"somehow", "", &end_somehow};

struct result_of_block {
  std::uint64_t count = 0, done = 0;
  bool is_found = false;
  std::string text, ending;
};

/// Plays blocks of ten seeds from 0, 100, 200, ... on.
std::map<std::uint64_t, result_of_block> play(unsigned jobs, std::uint64_t blocks) {
  std::map<std::uint64_t, result_of_block> results;
  std::uint64_t next = 0;
  workers all{jobs};
  all.run(
      [&]() -> seed_block {
        if (next == blocks) return {.first = {}, .count = 0};
        return {.first = {.what = &somehow, .seed = 100 * next++}, .count = 10};
      },
      [&](const seed_block& b, const block_report& r, const std::string& ending) {
        CHECK(results
                  .emplace(b.first.seed,
                           result_of_block{b.count, r.done, r.is_found, r.text.data(), ending})
                  .second);
      });
  return results;
}

/// Gives the next byte of the pipe; 0: nobody has it open any more.
char next_byte() {
  pollfd waited{.fd = living[0], .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&waited, 1, 20'000) == 1);
  char byte = 0;
  return ::read(living[0], &byte, 1) == 1 ? byte : '\0';
}

}  // namespace

TEST_CASE("each block of seeds is played once, and reported", "[sim]") {
  for (const unsigned jobs : {1u, 3u}) {
    const auto results = play(jobs, 7);
    REQUIRE(results.size() == 7);
    for (const std::uint64_t sound : {0u, 500u, 600u}) {
      CHECK(results.at(sound).done == 10);
      CHECK(results.at(sound).ending == "");
      CHECK_FALSE(results.at(sound).is_found);
    }
  }
}

TEST_CASE("a report counts the seeds before the one that ended its block", "[sim]") {
  const auto results = play(2, 5);
  CHECK(results.at(100).is_found);
  CHECK(results.at(100).done == 3);
  CHECK_THAT(results.at(100).text, Catch::StartsWith("seed 103 has a text\n"));
  CHECK(results.at(100).ending == "");
  CHECK_FALSE(results.at(200).is_found);
  CHECK(results.at(200).done == 3);
  CHECK(results.at(200).ending == "it died of SIGTERM");
  CHECK(results.at(300).done == 3);
  CHECK(results.at(300).ending == "it exited with 7");
  CHECK(results.at(400).done == 3);
  CHECK(results.at(400).ending ==
        "it died of SIGKILL, sent by somebody, or by the kernel for want of memory");
}

TEST_CASE("seeds whose allocations may fail are played in a fresh process each", "[sim]") {
  static unsigned played = 0;
  const sim::scenario counting{"counting", "", [](sim::world& w) {
                                 if (++played > 1) w.fail("a process plays a second seed");
                                 if (w.seed() == 3) ::_exit(7);
                               }};
  for (const bool is_scarce : {true, false}) {
    sim::faults wanted;
    wanted.failed_allocations = is_scarce ? 1e-9 : 0;
    unsigned blocks = 0;
    workers{1}.run(
        [&]() -> seed_block {
          const std::uint64_t count = blocks++ == 0 ? 10 : 0;
          return {.first = {.what = &counting, .seed = 1, .wanted = wanted}, .count = count};
        },
        [&](const seed_block&, const block_report& r, const std::string& ending) {
          CHECK(r.is_found == !is_scarce);
          CHECK(r.done == (is_scarce ? 2 : 1));
          CHECK(ending == (is_scarce ? "it exited with 7" : ""));
        });
  }
}

TEST_CASE("no process is started if there is no block", "[sim]") { CHECK(play(4, 0).empty()); }

TEST_CASE("no worker outlives its parent, however that ends", "[sim]") {
  static const sim::scenario endless{"endless", "", &never_end};
  REQUIRE(::pipe(living.data()) == 0);
  const pid_t parent = ::fork();
  REQUIRE(parent >= 0);
  if (parent == 0) {
    workers two{2};
    two.run([] { return seed_block{.first = {.what = &endless}}; },
            [](const seed_block&, const block_report&, const std::string&) {});
    ::_exit(0);
  }
  ::close(living[1]);
  for (int n = 0; n < 2; ++n) CHECK(next_byte() == 'p');
  ::kill(parent, SIGKILL);
  CHECK(::waitpid(parent, nullptr, 0) == parent);
  CHECK(next_byte() == '\0');
  ::close(living[0]);
}
