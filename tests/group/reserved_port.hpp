#pragma once

#include <cordma/base/unique_fd.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/io/socket_address.hpp>

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>

namespace cordma::test {

/// A port that is free at all addresses of this host, and kept from other programs. A listener of
/// cordma can take it, because both sockets have SO_REUSEADDR, and this one does not listen
/// (socket(7)).
class reserved_port {
 public:
  reserved_port() {
    const int on = 1;
    REQUIRE(fd_.is_open());
    REQUIRE(::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    sockaddr_in own{};
    own.sin_family = AF_INET;
    own.sin_addr.s_addr = INADDR_ANY;  // A listener at 0.0.0.0 needs it free everywhere.
    REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
    socklen_t size = sizeof own;
    REQUIRE(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0);
    number_ = ntohs(own.sin_port);
  }

  [[nodiscard]] std::uint16_t number() const noexcept { return number_; }
  [[nodiscard]] endpoint address() const { return {"127.0.0.1", number_}; }
  /// Lets clients connect, to whom nobody talks.
  void listen() const { REQUIRE(::listen(fd_.get(), SOMAXCONN) == 0); }

 private:
  unique_fd fd_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  std::uint16_t number_ = 0;
};

/// An abstract Unix socket's address that no other test has.
inline endpoint unix_address() {
  static unsigned count = 0;
  return endpoint{"unix:@cordma-meeting-" + std::to_string(::getpid()) + "-" +
                  std::to_string(++count)};
}

/// Connects to a port of loopback by TCP.
inline unique_fd dial(const endpoint& to) {
  unique_fd fd{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const socket_address address = socket_address::loopback(to.port);
  REQUIRE(::connect(fd.get(), address.data(), address.size_bytes()) == 0);
  return fd;
}

}  // namespace cordma::test
