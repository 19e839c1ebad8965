#pragma once

#include "support/connected_pair.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <functional>

namespace cordma::test {

/// A process that does `body` with a runtime of its own. It starts when it is given a port, and may
/// tell one. Made before the runtime of this one: a fork copies no device.
class peer_process {
 public:
  using port_teller = std::function<void(std::uint16_t)>;
  using body = std::function<task<>(runtime&, std::uint16_t port, const port_teller& tell)>;

  explicit peer_process(const body& what) {
    REQUIRE(::pipe(to_child_) == 0);
    REQUIRE(::pipe(from_child_) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) ::_exit(live(what));
  }
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;
  ~peer_process() {
    kill();
    for (const int fd : {to_child_[0], to_child_[1], from_child_[0], from_child_[1]}) ::close(fd);
  }
  void start(std::uint16_t port) {
    REQUIRE(::write(to_child_[1], &port, sizeof port) == sizeof port);
  }
  std::uint16_t told_port() {
    std::uint16_t port = 0;
    REQUIRE(::read(from_child_[0], &port, sizeof port) == sizeof port);
    return port;
  }
  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  void kill() noexcept {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  int live(const body& what) noexcept {
    try {
      std::uint16_t port = 0;
      if (::read(to_child_[0], &port, sizeof port) != sizeof port) return 1;
      runtime rt{on_test_device()};
      rt.run(what(rt, port, [this](std::uint16_t mine) {
        static_cast<void>(::write(from_child_[1], &mine, sizeof mine) == sizeof mine);
      }));
      return 0;
    } catch (const std::exception&) {
      return 2;
    }
  }

  int to_child_[2] = {-1, -1};
  int from_child_[2] = {-1, -1};
  pid_t pid_ = 0;
};

/// The devices alone would notice a lost peer after 30 s, and say so with a reason of their own.
inline connection_options deaf() {
  using namespace std::chrono_literals;
  connection_options o;
  o.timeout = 20;
  o.min_rnr_timer = 31;
  o.heartbeat.enabled = false;
  o.close_timeout = 200ms;
  return o;
}

}  // namespace cordma::test
