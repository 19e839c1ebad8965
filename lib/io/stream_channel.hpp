#pragma once

#include "byte_channel.hpp"

#include <cordma/detail/io/fd_watch.hpp>
#include "io/stream_socket.hpp"

namespace cordma {

/// The bytes of a stream socket, which is closed with this object. \thread the executor's.
/// \cost  one registration with the reactor, for as long as the object lives.
class stream_channel final : public byte_channel {
 public:
  /// \errors std::bad_alloc.
  explicit stream_channel(stream_socket socket);

  std::optional<std::size_t> try_read(std::span<std::byte> into) override;
  std::size_t try_write(std::span<const std::byte> from) override;
  void end_writing() noexcept override { socket_.shut_down_writing(); }

  void keep_alive(time_span interval, unsigned probes) override {
    socket_.keep_alive(interval, probes);
  }
  [[nodiscard]] bool finds_dead_hosts() const noexcept override { return true; }

  [[nodiscard]] stream_socket& socket() noexcept { return socket_; }

 private:
  struct socket_watch : fd_watch {
    explicit socket_watch(stream_channel& owner);
    stream_channel& channel;
  };

  stream_socket socket_;
  socket_watch watch_;  // Ends before the socket is closed.
};

}  // namespace cordma
