#include <cordma/base/unique_fd.hpp>

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <type_traits>

using cordma::unique_fd;

namespace {

int open_null() { return ::open("/dev/null", O_RDONLY | O_CLOEXEC); }
bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

}  // namespace

static_assert(!std::is_copy_constructible_v<unique_fd>);
static_assert(std::is_nothrow_move_constructible_v<unique_fd>);

TEST_CASE("a unique_fd closes what it owns, once", "[base]") {
  const int number = open_null();
  {
    unique_fd first{number};
    unique_fd second{std::move(first)};
    CHECK_FALSE(first.is_open());
    CHECK(second.get() == number);
    second = std::move(*&second);
    CHECK(is_open(number));
  }
  CHECK_FALSE(is_open(number));
}

TEST_CASE("a unique_fd that releases its descriptor leaves it open", "[base]") {
  const int number = open_null();
  {
    unique_fd fd{number};
    CHECK(fd.release() == number);
    CHECK_FALSE(fd.is_open());
  }
  CHECK(is_open(number));
  ::close(number);
}

TEST_CASE("a unique_fd that is given another closes the first", "[base]") {
  const int first = open_null();
  const int second = open_null();
  unique_fd fd{first};
  fd = unique_fd{second};
  CHECK_FALSE(is_open(first));
  CHECK(is_open(second));
  fd.reset();
  CHECK_FALSE(is_open(second));
  CHECK_FALSE(unique_fd{}.is_open());
}
