#include <cordma/base/assert.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <catch2/catch.hpp>
#include <csignal>
#include <string>

namespace {

struct ending {
  int status;
  std::string said;
};

/// Breaks a contract in a child process.
ending break_contract() {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);  // Catch2's handler would report the child as a failed test.
    ::dup2(ends[1], STDERR_FILENO);
    CORDMA_ASSERT(1 + 1 == 3, "sums are right");
    ::_exit(0);
  }
  ::close(ends[1]);
  ending result{};
  std::array<char, 256> chunk{};
  for (ssize_t n = 0; (n = ::read(ends[0], chunk.data(), chunk.size())) > 0;) {
    result.said.append(chunk.data(), static_cast<std::size_t>(n));
  }
  ::close(ends[0]);
  REQUIRE(::waitpid(child, &result.status, 0) == child);
  return result;
}

}  // namespace

TEST_CASE("a contract that holds costs nothing and says nothing", "[base]") {
  CORDMA_ASSERT(1 + 1 == 2, "sums are right");
}

TEST_CASE("a broken contract names itself, its place and why, and aborts", "[base]") {
  const auto [status, said] = break_contract();
  REQUIRE(WIFSIGNALED(status));
  CHECK(WTERMSIG(status) == SIGABRT);
  CHECK_THAT(said, Catch::Contains("assert_test.cpp:"));
  CHECK_THAT(said, Catch::Contains("contract broken: 1 + 1 == 3 (sums are right)"));
}
