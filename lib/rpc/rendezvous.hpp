#pragma once

#include "message_channel.hpp"

namespace cordma::detail {

/// A large message of ours, until the peer says that it is over. Owned by its task; when that goes
/// before, by its channel.
struct large_send : list_hook<large_send>, message_channel::outgoing, frame_cache::recycled {
  large_send(message_channel& c, std::uint64_t number, std::size_t length,
             std::optional<std::uint32_t> imm) noexcept;

  [[nodiscard]] std::uint64_t tag() const noexcept { return frame.tag; }
  /// It is over, or the peer says nothing any more.
  void end(std::uint32_t with_status) noexcept;

  message_channel* channel;
  bool is_announced = false;
  bool* tell_announced = nullptr;  ///< until it is
  bool is_abandoned = false;       ///< nobody waits for it
  std::optional<failure> refused;
  event cleared;
  event ended;
  std::uint32_t status = 0;
};

/// A large message of the peer's, until it is here or given up, and the peer is told so.
struct large_receive : list_hook<large_receive>,
                       expected_loan,
                       message_channel::outgoing,
                       waiter,
                       timer,
                       frame_cache::recycled {
  large_receive(message_channel& c, arrived_message& a, const message_protocol::frame& f) noexcept;

  [[nodiscard]] std::uint64_t tag() const noexcept { return purpose; }

  message_channel* channel;
  arrived_message& slot;
  std::size_t length;
  bool is_cleared = false;
  bool is_over = false;  ///< and the peer is to be told
  std::unique_ptr<large_message> message;
  remote_mr lent;
  std::size_t done = 0;  ///< bytes
  std::optional<request_op<read_request<1>>> reading;
};

}  // namespace cordma::detail
