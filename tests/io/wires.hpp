#pragma once

#include <cordma/base/unique_fd.hpp>
#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/io/executor.hpp>

#include <sys/socket.h>
#include <array>
#include <catch2/catch.hpp>
#include <chrono>

namespace cordma::test {

struct wires {
  unique_fd near, far;
  wires() {
    int fds[2];
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0);
    near.reset(fds[0]);
    far.reset(fds[1]);
  }
  void say() const { REQUIRE(::write(far.get(), "x", 1) == 1); }
  std::size_t read_all() const {
    std::array<char, 64> bytes;
    std::size_t total = 0;
    for (ssize_t n; (n = ::read(near.get(), bytes.data(), bytes.size())) > 0;) {
      total += std::size_t(n);
    }
    return total;
  }
};

struct counting_watch : fd_watch {
  counting_watch(executor& exec, int fd) : fd_watch{exec, fd, fd_events::readable, &count} {}
  static void count(fd_watch& self) noexcept { ++static_cast<counting_watch&>(self).fired_count; }
  int fired_count = 0;
};

/// Lets the executor see all that is there.
inline void settle(executor& exec) { exec.run(exec.sleep_for(std::chrono::microseconds{100})); }

}  // namespace cordma::test
