#pragma once

#include "connection/bootstrap.hpp"
#include "io/stream_channel.hpp"

#include "connection/handshake.hpp"

#include <cstdint>

namespace cordma::test {

/// Gives a hello that a handshake accepts.
inline handshake::hello some_hello(std::uint32_t qpn) {
  handshake::hello h{.qpn = qpn, .recv_wr_max = 1, .message_max_bytes = 1};
  h.gid.raw[15] = 1;
  return h;
}

template <std::size_t N>
task<> say(byte_channel& channel, std::array<std::byte, N> bytes) {
  co_await write_all(channel, bytes);
}

/// Sends the begin of a client's handshake.
inline task<> greet(byte_channel& channel, handshake::hello hello) {
  co_await say(channel, handshake::encode(handshake::start{.nonce = hello.nonce}));
  co_await say(channel, handshake::encode(hello));
}

/// Accepts a hello with that nonce.
inline task<> say_accepted(byte_channel& channel, handshake::nonce of = {}) {
  co_await say(channel, handshake::encode(handshake::verdict::accepted(of)));
}

/// Reads what a client begins with.
inline task<handshake::hello> read_greeting(byte_channel& channel) {
  static_cast<void>(co_await bootstrap::read_start(channel));
  co_return co_await bootstrap::read_hello(channel);
}

}  // namespace cordma::test
