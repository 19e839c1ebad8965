#include "machine_double.hpp"
#include "rdma_cm.hpp"

#include <catch2/catch.hpp>

#include <poll.h>
#include <pthread.h>
#include <sys/stat.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <string>
#include <thread>

// Calls before any constructor ran.

namespace {

struct early_calls {
  int null = -1;
  int channel = -1;
  ssize_t written = -1;
  bool is_channel = false;
  int closed = -1;
} early;

void call_early() {
  early.null = ::open("/dev/null", O_WRONLY | O_CLOEXEC);
  early.written = ::write(early.null, "12", 2);
  early.closed = ::close(early.null);
  early.channel = rdma_cm::open();
  early.is_channel = rdma_cm::is_channel(early.channel);
}
[[gnu::section(".preinit_array"), gnu::used]] void (*const call_before_constructors)() = call_early;

bool readable(int fd) {
  pollfd one{fd, POLLIN, 0};
  return ::poll(&one, 1, 0) == 1 && (one.revents & POLLIN) != 0;
}

template <class Open>
void gives_channel_and_file(const char* name, Open open) {
  INFO(name);
  const int fd = open(rdma_cm::path, O_RDWR | O_CLOEXEC);
  CHECK(rdma_cm::is_channel(fd));
  CHECK(::close(fd) == 0);
  const int file = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0);
  CHECK(::close(file) == 0);
}

template <class OpenAt>
void gives_channel_and_file_below(const char* name, OpenAt open_at) {
  INFO(name);
  const int fd = open_at(AT_FDCWD, rdma_cm::path, O_RDWR | O_CLOEXEC);
  CHECK(rdma_cm::is_channel(fd));
  CHECK(::close(fd) == 0);
  const int root = open_at(AT_FDCWD, "/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  const int file = open_at(root, "self/status", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0);
  CHECK(::close(file) == 0);
  CHECK(::close(root) == 0);
}

}  // namespace

TEST_CASE("a call before any constructor ran is served", "[libc]") {
  CHECK(early.null >= 0);
  CHECK(early.written == 2);
  CHECK(early.closed == 0);
  CHECK(early.is_channel);
  CHECK(rdma_cm::is_channel(early.channel));
}

TEST_CASE("every form of open gives a channel of rdma_cm, and a file of other paths", "[libc]") {
  using open_function = int(const char*, int, ...);
  using open_at_function = int(int, const char*, int, ...);
  // The fortified forms take no mode.
  using open_2_function = int(const char*, int);
  using openat_2_function = int(int, const char*, int);
  const int before = machine::channels();
  for (const char* name : {"open", "open64"})
    gives_channel_and_file(name, rdma_cm::libc<open_function>(name));
  for (const char* name : {"__open_2", "__open64_2"})
    gives_channel_and_file(name, rdma_cm::libc<open_2_function>(name));
  for (const char* name : {"openat", "openat64"})
    gives_channel_and_file_below(name, rdma_cm::libc<open_at_function>(name));
  for (const char* name : {"__openat_2", "__openat64_2"})
    gives_channel_and_file_below(name, rdma_cm::libc<openat_2_function>(name));
  CHECK(machine::channels() == before);
}

TEST_CASE("the mode of a new file is passed on", "[libc]") {
  const mode_t mask = ::umask(0);
  const int fd = ::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0640);
  ::umask(mask);
  REQUIRE(fd >= 0);
  struct stat is{};
  REQUIRE(::fstat(fd, &is) == 0);
  CHECK((is.st_mode & 07777) == 0640);
  CHECK(S_ISREG(is.st_mode));
  ::close(fd);
}

TEST_CASE("every form of fstat says that a channel is a character device", "[libc]") {
  const int fd = rdma_cm::open();
  for (const char* name : {"fstat", "fstat64"}) {
    INFO(name);
    struct stat is{};
    CHECK(rdma_cm::libc<int(int, struct stat*)>(name)(fd, &is) == 0);
    CHECK(S_ISCHR(is.st_mode));
  }
  for (const char* name : {"__fxstat", "__fxstat64"}) {
    INFO(name);
    constexpr int version = 1;
    struct stat is{};
    CHECK(rdma_cm::libc<int(int, int, struct stat*)>(name)(version, fd, &is) == 0);
    CHECK(S_ISCHR(is.st_mode));
  }
  ::close(fd);
}

TEST_CASE("a command's result and errno are the machine's", "[libc]") {
  const int fd = rdma_cm::open();
  const long before = machine::commands();
  CHECK(rdma_cm::command(fd, machine::nothing));
  errno = 0;
  CHECK_FALSE(rdma_cm::command(fd, machine::refuse));
  CHECK(errno == EPROTO);
  CHECK(machine::commands() == before + 2);
  ::close(fd);
}

TEST_CASE("a channel polls readable while events wait, and blocks as its flags say", "[libc]") {
  const int fd = rdma_cm::open(O_NONBLOCK);
  CHECK_FALSE(readable(fd));
  errno = 0;
  CHECK_FALSE(rdma_cm::command(fd, machine::get));
  CHECK(errno == EAGAIN);
  CHECK(rdma_cm::command(fd, machine::raise));
  CHECK(rdma_cm::command(fd, machine::raise));
  CHECK(readable(fd));
  CHECK(rdma_cm::command(fd, machine::get));
  CHECK(readable(fd));
  CHECK(rdma_cm::command(fd, machine::get));
  CHECK_FALSE(readable(fd));
  REQUIRE(::fcntl(fd, F_SETFL, O_RDWR) == 0);
  std::thread raiser{[fd] { rdma_cm::command(fd, machine::raise); }};
  CHECK(rdma_cm::command(fd, machine::get));
  raiser.join();
  ::close(fd);
}

TEST_CASE("the flags of open are those of the descriptor", "[libc]") {
  for (const int flag : {0, O_CLOEXEC}) {
    const int fd = ::open(rdma_cm::path, O_RDWR | flag);
    CHECK((::fcntl(fd, F_GETFD) & FD_CLOEXEC) == (flag != 0 ? FD_CLOEXEC : 0));
    CHECK((::fcntl(fd, F_GETFL) & O_NONBLOCK) == 0);
    ::close(fd);
  }
}

TEST_CASE("a machine that cannot make a channel gives its error, and no descriptor", "[libc]") {
  const int lowest = ::dup(0);
  ::close(lowest);
  machine::fail_open(ENOBUFS);
  errno = 0;
  CHECK(rdma_cm::open() == -1);
  CHECK(errno == ENOBUFS);
  const int again = ::dup(0);
  CHECK(again == lowest);
  ::close(again);
}

TEST_CASE("a thread that waits for an event can be cancelled, and leaves the channel", "[libc]") {
  const int before = machine::channels();
  const int fd = rdma_cm::open();
  std::array<int, 1> argument{fd};
  pthread_t thread{};
  REQUIRE(::pthread_create(
              &thread, nullptr,
              [](void* of) -> void* {
                rdma_cm::command(*static_cast<const int*>(of), machine::get);
                return nullptr;
              },
              argument.data()) == 0);
  CHECK(::pthread_cancel(thread) == 0);
  void* result = nullptr;
  REQUIRE(::pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  CHECK(rdma_cm::is_channel(fd));
  CHECK(::close(fd) == 0);
  CHECK(machine::channels() == before);
  CHECK(machine::misuses() == 0);
}

TEST_CASE("foreign descriptors keep their bytes, errors and cancellation", "[libc]") {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const long commands = machine::commands();
  errno = 7;
  CHECK(::write(ends[1], "abc", 3) == 3);
  struct stat is{};
  CHECK(::fstat(ends[0], &is) == 0);
  CHECK(S_ISFIFO(is.st_mode));
  CHECK(errno == 7);
  char got[4] = {};
  CHECK(::read(ends[0], got, 3) == 3);
  CHECK(std::string{got} == "abc");
  errno = 0;
  CHECK(::write(-1, "abc", 3) == -1);
  CHECK(errno == EBADF);
  CHECK(::close(-1) == -1);
  CHECK(::close(1 << 30) == -1);
  CHECK(machine::commands() == commands);

  // Full: the thread blocks, or is about to.
  REQUIRE(::fcntl(ends[1], F_SETFL, O_NONBLOCK) == 0);
  while (::write(ends[1], "x", 1) == 1) {
  }
  REQUIRE(::fcntl(ends[1], F_SETFL, 0) == 0);
  pthread_t thread{};
  REQUIRE(::pthread_create(
              &thread, nullptr,
              [](void* of) -> void* {
                for (;;) static_cast<void>(::write(*static_cast<const int*>(of), "y", 1));
              },
              &ends[1]) == 0);
  CHECK(::pthread_cancel(thread) == 0);
  void* result = nullptr;
  REQUIRE(::pthread_join(thread, &result) == 0);
  CHECK(result == PTHREAD_CANCELED);
  ::close(ends[0]);
  ::close(ends[1]);
}
