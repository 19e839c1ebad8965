#include <cordma/base/unique_fd.hpp>

#include <fcntl.h>

#include <catch2/catch.hpp>
#include <utility>

using cordma::unique_fd;

namespace {

unique_fd open_null() { return unique_fd{::open("/dev/null", O_RDONLY | O_CLOEXEC)}; }

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

}  // namespace

TEST_CASE("a descriptor is closed when its owner goes", "[base]") {
  int number = -1;
  {
    const unique_fd fd = open_null();
    number = fd.get();
    REQUIRE(is_open(number));
  }
  CHECK_FALSE(is_open(number));
}

TEST_CASE("moving hands the descriptor over and closes what was held", "[base]") {
  unique_fd first = open_null();
  unique_fd second = open_null();
  const int kept = first.get();
  const int closed = second.get();
  second = std::move(first);
  CHECK(second.get() == kept);
  CHECK_FALSE(first.is_open());
  CHECK(is_open(kept));
  CHECK_FALSE(is_open(closed));
}

TEST_CASE("an owner of nothing closes nothing", "[base]") {
  unique_fd none;
  CHECK_FALSE(none.is_open());
  none.reset();
  CHECK(none.get() == -1);
}
