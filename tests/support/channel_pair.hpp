#pragma once

#include "io/stream_channel.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

namespace cordma::test {

/// The two ends of a connection, on one executor.
struct channel_pair {
  enum class kind { socketpair, tcp };

  explicit channel_pair(kind of = kind::socketpair) {
    if (of == kind::tcp) {
      stream_listener acceptor{executor, socket_address::loopback(0)};
      auto [near, far] = executor.run(
          when_all(stream_socket::connect(executor, acceptor.local_address()), acceptor.accept()));
      left.emplace(std::move(near));
      right.emplace(std::move(far));
      return;
    }
    std::array<int, 2> fds{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
    left.emplace(stream_socket{executor, unique_fd{fds[0]}});
    right.emplace(stream_socket{executor, unique_fd{fds[1]}});
  }
  cordma::executor executor;
  std::optional<stream_channel> left;
  std::optional<stream_channel> right;
};

/// Writes until the kernel takes no more.
inline task<> fill(byte_channel& channel) {
  const std::vector<std::byte> bytes(1 << 20);
  for (;;) co_await write_all(channel, bytes);
}

/// Returns how an operation fails; no error if it does not.
template <class Op>
std::error_code code_of(executor& exec, Op&& op) {
  const auto outcome = exec.run(as_result(std::forward<Op>(op)));
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

inline std::vector<std::byte> numbered(std::size_t size) {
  std::vector<std::byte> bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 7 + i / 256);
  return bytes;
}

}  // namespace cordma::test
