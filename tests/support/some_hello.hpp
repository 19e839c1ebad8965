#pragma once

#include <cordma/detail/connection/handshake.hpp>

#include <cstdint>

namespace cordma::test {

/// What a handshake takes for good.
inline handshake::hello some_hello(std::uint32_t qpn) {
  handshake::hello h{.qpn = qpn, .recv_wr_max = 1, .message_max_bytes = 1};
  h.gid.raw[15] = 1;
  return h;
}

}  // namespace cordma::test
