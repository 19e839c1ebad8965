#pragma once

#include <cordma/base/unique_fd.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/io/socket_address.hpp>

#include <sys/socket.h>
#include <sys/time.h>
#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <string>
#include <string_view>

// A client of HTTP that blocks, and says what the test likes.
namespace cordma::test {

/// A connected socket that blocks. Nobody who is silent for 20 s keeps the test.
inline unique_fd connected_to(const endpoint& server) {
  const socket_address address = server.kind == endpoint::bootstrap::unix_socket
                                     ? socket_address::unix_path(server.host)
                                     : socket_address::resolve(server.host, server.port).front();
  unique_fd fd{::socket(address.data()->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  REQUIRE(fd.is_open());
  const timeval limit{.tv_sec = 20, .tv_usec = 0};
  REQUIRE(::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
  REQUIRE(::connect(fd.get(), address.data(), address.size_bytes()) == 0);
  return fd;
}

/// Reads to the end of the stream.
inline std::string read_all(const unique_fd& from) {
  std::string all;
  std::array<char, 4096> chunk;
  for (;;) {
    const ssize_t n = ::recv(from.get(), chunk.data(), chunk.size(), 0);
    // With a time limit no handler's SA_RESTART goes on by itself (signal(7)).
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return all;
    all.append(chunk.data(), std::size_t(n));
  }
}

inline std::string http_exchange(const endpoint& server, std::string_view request) {
  const unique_fd fd = connected_to(server);
  REQUIRE(::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) ==
          ssize_t(request.size()));
  return read_all(fd);
}

inline std::string http_body(const std::string& answer) {
  const std::size_t end = answer.find("\r\n\r\n");
  return end == std::string::npos ? std::string{} : answer.substr(end + 4);
}

inline std::string http_page(const endpoint& server) {
  const std::string answer = http_exchange(server, "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
  INFO(answer);
  CHECK(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  return http_body(answer);
}

}  // namespace cordma::test
