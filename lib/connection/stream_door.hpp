#pragma once

#include "door.hpp"
#include "link.hpp"

#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/io/stream_socket.hpp>

namespace cordma::detail {

/// Runs a handshake over a link. Gives the link's channel to the connection as its last step.
using handshake_function = callback<task<connection>(link& way)>;

/// A listening stream socket.
class stream_door final : public door {
 public:
  /// \errors as `stream_listener`.
  stream_door(cordma::executor& executor, const socket_address& local, int backlog,
              handshake_function shake_hands)
      : sockets_{executor, local, backlog}, shake_hands_{std::move(shake_hands)} {}

  task<std::unique_ptr<arrival>> accept() override;
  void close() noexcept override { sockets_.close(); }
  [[nodiscard]] socket_address local_address() const override { return sockets_.local_address(); }

 private:
  stream_listener sockets_;
  const handshake_function shake_hands_;
};

}  // namespace cordma::detail
