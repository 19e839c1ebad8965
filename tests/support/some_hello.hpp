#pragma once

#include <cordma/detail/connection/handshake.hpp>

#include <cstdint>

namespace cordma::test {

/// Gives a hello that a handshake accepts.
inline handshake::hello some_hello(std::uint32_t qpn) {
  handshake::hello h{.qpn = qpn, .recv_wr_max = 1, .message_max_bytes = 1};
  h.gid.raw[15] = 1;
  return h;
}

}  // namespace cordma::test
