#pragma once

#include "io/stream_channel.hpp"

#include <memory>
#include <utility>

namespace cordma::test {

/// A peer that speaks by hand: a channel that can be moved.
struct raw_peer {
  raw_peer(stream_socket socket)  // NOLINT: what was connected is what speaks.
      : channel{std::make_unique<stream_channel>(std::move(socket))} {}
  operator byte_channel&() const noexcept { return *channel; }  // NOLINT
  [[nodiscard]] int fd() const noexcept { return channel->socket().fd(); }

  std::unique_ptr<stream_channel> channel;
};

}  // namespace cordma::test
