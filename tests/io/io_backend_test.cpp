#include "../../lib/io/io_backend.hpp"

#include "support/io_backend.hpp"
#include "support/skip.hpp"
#include "support/variable.hpp"
#include "wires.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;

namespace {

constexpr const char* name = "CORDMA_IO_BACKEND";

std::string name_of(executor_options options) { return make_reactor(options)->name(); }

}  // namespace

TEST_CASE("io_uring waits unless the options or the environment say epoll", "[io]") {
  if (!has_io_uring()) CORDMA_SKIP("io_uring is forbidden here");
  {
    const variable unset{name, nullptr};
    CHECK(name_of({}) == "io_uring");
    CHECK(name_of({.backend = io_backend::epoll}) == "epoll");
  }
  const variable says_epoll{name, "epoll"};
  CHECK(name_of({}) == "epoll");
  CHECK(name_of({.backend = io_backend::io_uring}) == "io_uring");
  CHECK(name_of({.backend = io_backend::automatic}) == "io_uring");
}

TEST_CASE("a wrong name of a backend is an error that says it", "[io]") {
  const variable wrong{name, "kqueue"};
  CHECK_THROWS_WITH(executor{}, Catch::Contains("CORDMA_IO_BACKEND") &&
                                    Catch::Contains("'kqueue' is none of automatic"));
}

TEST_CASE("what is wrong with a ring of io_uring is no reason for epoll", "[io]") {
  if (!has_io_uring()) CORDMA_SKIP("io_uring is forbidden here");
  CHECK_THROWS_WITH(executor({.backend = io_backend::automatic, .ring_entries = 0}),
                    Catch::Contains("ring_entries is 0"));
}
