#include "machine_double.hpp"
#include "rdma_cm.hpp"

#include <catch2/catch.hpp>

#include <dlfcn.h>
#include <linux/close_range.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace {

/// A channel is open, and is closed with the last of these descriptors.
struct census {
  int before = machine::channels();
  [[nodiscard]] int open() const { return machine::channels() - before; }
};

bool is_open(int fd) { return ::fcntl(fd, F_GETFD) != -1; }

/// The highest number that a descriptor may have here, of those beyond the table's first page, too.
int far_number() {
  rlimit limit{};
  ::getrlimit(RLIMIT_NOFILE, &limit);
  constexpr rlim_t enough = 70'000;
  limit.rlim_cur = std::min(limit.rlim_max, std::max(limit.rlim_cur, enough));
  ::setrlimit(RLIMIT_NOFILE, &limit);
  return static_cast<int>(std::min(limit.rlim_cur, enough)) - 1;
}

constexpr std::size_t naming_bytes = 1 + sizeof(int);

/// The command that names another channel.
std::array<char, naming_bytes> naming(int other) {
  std::array<char, naming_bytes> command{static_cast<char>(machine::migrate)};
  std::memcpy(&command[1], &other, sizeof other);
  return command;
}

bool names(int fd, int other) {
  return ::write(fd, naming(other).data(), naming_bytes) == naming_bytes;
}

}  // namespace

TEST_CASE("a channel lives as long as one of its descriptors", "[libc]") {
  const census count;
  const int fd = rdma_cm::open();
  const int far = far_number();
  const int copies[] = {::dup(fd), ::fcntl(fd, F_DUPFD, 0), ::fcntl(fd, F_DUPFD_CLOEXEC, 100),
                        ::dup2(fd, far), ::dup3(fd, 201, O_CLOEXEC)};
  CHECK(::close(fd) == 0);
  CHECK_FALSE(is_open(fd));
  for (const int copy : copies) {
    CHECK(count.open() == 1);
    CHECK(rdma_cm::is_channel(copy));
    CHECK(::close(copy) == 0);
  }
  CHECK(count.open() == 0);
}

TEST_CASE("a number that another file gets is no channel any more", "[libc]") {
  const census count;
  const int fd = rdma_cm::open();
  const int null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  const long commands = machine::commands();
  SECTION("by dup2") { CHECK(::dup2(null, fd) == fd); }
  SECTION("by dup3") { CHECK(::dup3(null, fd, O_CLOEXEC) == fd); }
  SECTION("by close and dup") {
    CHECK(::close(fd) == 0);
    CHECK(::dup(null) == fd);
  }
  CHECK(count.open() == 0);
  CHECK(::write(fd, "ab", 2) == 2);
  CHECK(machine::commands() == commands);
  ::close(fd);
  ::close(null);
}

TEST_CASE("a channel's number may become another channel's", "[libc]") {
  const census count;
  const int first = rdma_cm::open();
  const int second = rdma_cm::open();
  CHECK(count.open() == 2);
  CHECK(::dup2(first, second) == second);
  CHECK(count.open() == 1);
  CHECK(::dup2(first, first) == first);
  CHECK(::close(first) == 0);
  CHECK(rdma_cm::is_channel(second));
  CHECK(::close(second) == 0);
  CHECK(count.open() == 0);
}

TEST_CASE("a copy that fails changes nothing", "[libc]") {
  const census count;
  const int fd = rdma_cm::open();
  errno = 0;
  CHECK(::dup2(-1, fd) == -1);
  CHECK(errno == EBADF);
  CHECK(::dup2(fd, -1) == -1);
  CHECK(::dup3(fd, fd, 0) == -1);
  CHECK(errno == EINVAL);
  CHECK(::fcntl(fd, F_DUPFD, -1) == -1);
  CHECK(errno == EINVAL);
  CHECK(rdma_cm::is_channel(fd));
  CHECK(::close(fd) == 0);
  CHECK(count.open() == 0);
}

TEST_CASE("both forms of fcntl copy a channel", "[libc]") {
  const census count;
  const int fd = rdma_cm::open();
  for (const char* name : {"fcntl", "fcntl64"}) {
    INFO(name);
    const auto control = rdma_cm::libc<int(int, int, ...)>(name);
    const int copy = control(fd, F_DUPFD_CLOEXEC, 0);
    CHECK(rdma_cm::is_channel(copy));
    CHECK((control(copy, F_GETFL) & O_ACCMODE) == O_RDWR);
    CHECK(::close(copy) == 0);
  }
  CHECK(::close(fd) == 0);
  CHECK(count.open() == 0);
}

TEST_CASE("ranges that are closed take the channels in them along", "[libc]") {
  const census count;
  const int low = ::fcntl(rdma_cm::open(), F_DUPFD_CLOEXEC, 300);
  const int high = ::fcntl(low, F_DUPFD_CLOEXEC, 400);
  const auto from = static_cast<unsigned>(low);
  const auto to = static_cast<unsigned>(high);
  SECTION("close_range closes those inside, and no other") {
    CHECK(::close_range(from, to - 1, 0) == 0);
    CHECK_FALSE(is_open(low));
    CHECK(rdma_cm::is_channel(high));
    CHECK(::close_range(to, ~0U, 0) == 0);
  }
  SECTION("close_range of a table of its own, which the only thread has anyway") {
    CHECK(::close_range(from, to, CLOSE_RANGE_UNSHARE) == 0);
    CHECK_FALSE(is_open(low));
    CHECK_FALSE(is_open(high));
  }
  SECTION("close_range that only marks them closes none") {
    CHECK(::close_range(from, to, CLOSE_RANGE_CLOEXEC) == 0);
    CHECK(rdma_cm::is_channel(low));
    CHECK(rdma_cm::is_channel(high));
    CHECK(::close_range(to, from, 0) == -1);
    CHECK(errno == EINVAL);
    CHECK(rdma_cm::is_channel(low));
  }
  SECTION("closefrom") { ::closefrom(low); }
  ::close(low);
  ::close(high);
  CHECK(count.open() == 1);  // Only the first descriptor, below `from`, is open.
  CHECK(rdma_cm::in_child([] {
          ::closefrom(3);
          return machine::channels() == 0;
        }) == 0);
}

TEST_CASE("a command may name another channel by its descriptor", "[libc]") {
  const int fd = rdma_cm::open();
  const int other = rdma_cm::open();
  CHECK(names(fd, other));
  CHECK(names(fd, fd));
  errno = 0;
  CHECK_FALSE(names(fd, 0));
  CHECK(errno == EBADF);
  CHECK(::close(other) == 0);
  CHECK_FALSE(names(fd, other));
  ::close(fd);
}

TEST_CASE("a child of fork has its parent's channels, and closes only its own", "[libc]") {
  const int fd = rdma_cm::open();
  CHECK(rdma_cm::in_child([fd] {
          return rdma_cm::is_channel(fd) && ::close(fd) == 0 && !rdma_cm::is_channel(fd) &&
                 rdma_cm::is_channel(rdma_cm::open());
        }) == 0);
  CHECK(rdma_cm::is_channel(fd));
  CHECK(::close(fd) == 0);
}

TEST_CASE("a child of vfork that closes descriptors leaves the parent's channels", "[libc]") {
  const census count;
  const int fd = rdma_cm::open();
  const int high = ::fcntl(fd, F_DUPFD_CLOEXEC, 500);
  const pid_t pid = ::vfork();  // NOLINT: what is tested.
  if (pid == 0) {
    const bool closed =
        ::close(fd) == 0 && ::close_range(400, ~0U, 0) == 0 && ::fcntl(high, F_GETFD) == -1;
    ::_exit(closed ? 0 : 1);
  }
  int status = -1;
  REQUIRE(::waitpid(pid, &status, 0) == pid);
  CHECK(status == 0);
  CHECK(count.open() == 1);
  CHECK(rdma_cm::is_channel(fd));
  CHECK(rdma_cm::is_channel(high));
  ::close(fd);
  ::close(high);
  CHECK(count.open() == 0);
}

TEST_CASE("a descriptor that is closed while others write uses no closed channel", "[libc]") {
  const census count;
  // The functions come straight from the library: ThreadSanitizer's own write and close report the
  // program's race.
  void* const library = ::dlopen("libsoftverbs_cm.so.0", RTLD_NOW | RTLD_NOLOAD);
  REQUIRE(library != nullptr);
  const auto close = reinterpret_cast<int (*)(int)>(::dlsym(library, "close"));
  const auto write =
      reinterpret_cast<ssize_t (*)(int, const void*, std::size_t)>(::dlsym(library, "write"));
  std::atomic<int> fd{rdma_cm::open()};
  std::atomic<bool> over{false};
  std::thread writers[2];
  for (std::thread& one : writers)
    one = std::thread{[&] {
      while (!over) {
        const std::array<char, naming_bytes> command = naming(fd);
        static_cast<void>(write(fd, command.data(), command.size()));
      }
    }};
  constexpr int rounds = 2000;
  for (int n = 0; n < rounds; ++n) {
    const int old = fd;
    const int next = rdma_cm::open();
    CHECK(close(old) == 0);
    fd = next;
  }
  over = true;
  for (std::thread& one : writers) one.join();
  CHECK(close(fd) == 0);
  ::dlclose(library);
  CHECK(count.open() == 0);
  CHECK(machine::misuses() == 0);
}
