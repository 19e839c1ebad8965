#pragma once

#include "io/stream_channel.hpp"

#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <optional>
#include <vector>

namespace cordma::test {

/// The two ends of a Unix socket pair, on one executor.
struct channel_pair {
  channel_pair() {
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
    left.emplace(stream_socket{executor, unique_fd{fds[0]}});
    right.emplace(stream_socket{executor, unique_fd{fds[1]}});
  }
  cordma::executor executor;
  std::optional<stream_channel> left;
  std::optional<stream_channel> right;
};

inline std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 7 + i / 256);
  return bytes;
}

}  // namespace cordma::test
