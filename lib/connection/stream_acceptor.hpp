#pragma once

#include "acceptor.hpp"

#include "io/stream_socket.hpp"

namespace cordma::detail {

/// A listening stream socket.
class stream_acceptor final : public acceptor {
 public:
  /// \errors as `stream_listener`.
  stream_acceptor(cordma::executor& executor, const socket_address& local, int backlog)
      : sockets_{executor, local, backlog} {}

  task<std::unique_ptr<arrival>> accept() override;
  void close() noexcept override { sockets_.close(); }
  [[nodiscard]] socket_address local_address() const override { return sockets_.local_address(); }

 private:
  stream_listener sockets_;
};

}  // namespace cordma::detail
