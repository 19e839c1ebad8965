#pragma once

#include "message_channel.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/coro/semaphore.hpp>

#include <utility>

namespace cordma::detail {

/// What a `message_stream` is: the channel, the messages that wait to be received, and the
/// connection, until the stream is dropped.
class stream_channel final : public message_channel {
 public:
  /// `conn` stays the caller's until `own` takes it.
  stream_channel(connection& conn, const stream_options& options)
      : stream_channel{resources_of(conn), options} {}
  stream_channel(const channel_resources& resources, const stream_options& options)
      : message_channel{resources, options, order::as_sent} {}

  void own(connection conn) noexcept { conn_ = std::move(conn); }
  [[nodiscard]] connection& conn() noexcept { return conn_; }
  /// Drops the connection: the stream is gone.
  void leave() noexcept { const connection gone = std::move(conn_); }

  /// One permit for each message to `deliver`; closed when no more will come.
  [[nodiscard]] semaphore& messages() noexcept { return messages_; }

 private:
  void on_message() noexcept override { messages_.release(); }
  void on_closed() noexcept override { messages_.close(*failed()); }

  semaphore messages_{0};
  connection conn_;
};

}  // namespace cordma::detail
