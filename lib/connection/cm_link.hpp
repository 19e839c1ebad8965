#pragma once

#include "cm/id.hpp"
#include "connection_state.hpp"
#include "io/byte_channel.hpp"

#include <optional>

namespace cordma::detail {

/// The bytes of an agent's control queue pair, and what tells of the peer's end: rdma_cm, if there
/// is an id, else the heartbeat. Without bytes the channel only ends. The connection's state
/// outlives it.
class cm_link final : public byte_channel, private byte_channel::listener {
 public:
  /// `bytes` may be null, and so may be `id`, but not both.
  cm_link(connection_state& state, byte_channel* bytes, std::optional<cm::id> id = {});
  ~cm_link() override;

  std::optional<std::size_t> try_read(std::span<std::byte> into) override;
  std::size_t try_write(std::span<const std::byte> from) override;
  void end_writing() noexcept override;
  void hang_up() noexcept override;
  [[nodiscard]] bool ends_with_peer() const noexcept override { return id_.has_value(); }

 private:
  void on_channel_change() noexcept override { tell_change(); }

  connection_state& state_;
  byte_channel* const bytes_;
  std::optional<cm::id> id_;
};

}  // namespace cordma::detail
