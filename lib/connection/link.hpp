#pragma once

#include "io/stream_channel.hpp"

#include <cordma/io/socket_address.hpp>

#include <memory>
#include <utility>

namespace cordma::detail {

/// The way to a peer, as a handshake finds it.
struct link {
  /// \errors std::bad_alloc; those of getsockname(2) and getpeername(2): the peer has gone.
  explicit link(stream_socket socket)
      : local{socket.local_address()},
        peer{socket.peer_address()},
        channel{std::make_unique<stream_channel>(std::move(socket))} {}

  socket_address local;
  socket_address peer;
  std::unique_ptr<byte_channel> channel;  ///< The connection takes it when both have accepted.
};

}  // namespace cordma::detail
