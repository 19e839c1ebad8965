#pragma once

#include "io/stream_channel.hpp"
#include "security/tls_channel.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace cordma::test {

/// The two ends of a Unix socket pair.
struct socket_pair {
  socket_pair() {
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
    left.reset(fds[0]);
    right.reset(fds[1]);
  }
  unique_fd left;
  unique_fd right;
};

/// TLS over both ends of a socket pair.
struct tls_pair {
  tls_pair(const credentials& of_client, const credentials& of_server)
      : client{of_client,
               std::make_unique<stream_channel>(stream_socket{executor, std::move(sockets.left)})},
        server{of_server, std::make_unique<stream_channel>(
                              stream_socket{executor, std::move(sockets.right)})} {}

  /// Shakes hands on both sides. A side that fails hangs up, as connections do.
  void shake_hands(std::string host = "server.example") {
    executor.run(when_all(one_side(client, tls_role::client, std::move(host), client_outcome),
                          one_side(server, tls_role::server, {}, server_outcome)));
  }
  void connect(std::string host = "server.example") {
    shake_hands(std::move(host));
    std::move(client_outcome).value();
    std::move(server_outcome).value();
  }

  cordma::executor executor;
  socket_pair sockets;
  tls_channel client;
  tls_channel server;
  result<void> client_outcome{};
  result<void> server_outcome{};

 private:
  static task<> one_side(tls_channel& channel, tls_role role, std::string host,
                         result<void>& outcome) {
    outcome = co_await as_result(channel.shake_hands(role, std::move(host)));
    if (outcome.has_failure()) channel.below().end_writing();
  }
};

}  // namespace cordma::test
