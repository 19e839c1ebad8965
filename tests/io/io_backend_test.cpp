#include "../../lib/io/io_backend.hpp"

#include "wires.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>
#include <optional>
#include <string>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;

namespace {

/// The environment variable, and what it was before.
class variable {
 public:
  explicit variable(const char* value) { set(value); }
  ~variable() { set(before_ ? before_->c_str() : nullptr); }
  variable(const variable&) = delete;

 private:
  static constexpr const char* name = "CORDMA_IO_BACKEND";
  static void set(const char* value) {
    // NOLINTNEXTLINE(concurrency-mt-unsafe): the test has one thread.
    if ((value == nullptr ? ::unsetenv(name) : ::setenv(name, value, 1)) != 0) std::abort();
  }
  static std::optional<std::string> now() {
    const char* const text = std::getenv(name);  // NOLINT(concurrency-mt-unsafe)
    return text == nullptr ? std::nullopt : std::optional<std::string>{text};
  }
  std::optional<std::string> before_ = now();
};

std::string name_of(executor_options options) { return make_reactor(options)->name(); }

}  // namespace

TEST_CASE("io_uring waits unless the options or the environment say epoll", "[io]") {
  {
    const variable unset{nullptr};
    CHECK(name_of({}) == "io_uring");
    CHECK(name_of({.backend = io_backend::epoll}) == "epoll");
  }
  const variable says_epoll{"epoll"};
  CHECK(name_of({}) == "epoll");
  CHECK(name_of({.backend = io_backend::io_uring}) == "io_uring");
  CHECK(name_of({.backend = io_backend::automatic}) == "io_uring");
}

TEST_CASE("a wrong name of a backend is an error that says it", "[io]") {
  const variable wrong{"kqueue"};
  CHECK_THROWS_WITH(executor{}, Catch::Contains("CORDMA_IO_BACKEND") &&
                                    Catch::Contains("'kqueue' is none of automatic"));
}

TEST_CASE("what is wrong with a ring of io_uring is no reason for epoll", "[io]") {
  CHECK_THROWS_WITH(executor({.backend = io_backend::automatic, .ring_entries = 0}),
                    Catch::Contains("ring_entries is 0"));
}
