#pragma once

#include "security/tls_channel.hpp"
#include "support/raw_peer.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/runtime/runtime.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>

#include <array>
#include <memory>
#include <vector>

namespace cordma::test {

/// Returns the first record of a client of TLS.
inline std::vector<std::byte> first_record(runtime& rt, const credentials& key) {
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  tls_channel tls{
      key, std::make_unique<stream_channel>(stream_socket{rt.executor(), unique_fd{fds[0]}})};
  raw_peer wire{stream_socket{rt.executor(), unique_fd{fds[1]}}};
  std::vector<std::byte> said(4096);
  const auto ended = rt.run(when_any(read_some(wire, said), tls.shake_hands(tls_role::client, "")));
  said.resize(std::get<0>(ended));
  return said;
}

}  // namespace cordma::test
