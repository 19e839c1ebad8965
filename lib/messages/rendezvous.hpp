#pragma once

#include "message_channel.hpp"

namespace cordma::detail {

/// A large message of ours, until the peer says that it is over and reaches it no more. Owned by
/// its task; when that goes before, by its channel.
struct large_send : list_hook<large_send>,
                    message_channel::outgoing,
                    inline_grant,
                    frame_cache::recycled {
  /// \errors as `agent::lend_inline`.
  large_send(message_channel& c, std::uint64_t number, local_mr memory,
             std::optional<std::uint32_t> imm, const large_options& how);

  [[nodiscard]] std::uint64_t tag() const noexcept { return frame.tag; }
  void end() noexcept;

  message_channel* channel;
  bool* tell_announced;  ///< once it is
  bool is_announced = false;
  bool is_answered = false;   ///< the peer has said that it is over, or says nothing any more
  bool is_abandoned = false;  ///< nobody waits for it
  std::optional<failure> refused;
  event ended;
  std::uint32_t status = 0;
};

/// A large message of the peer's, until it is here or given up, and the peer is told so.
struct large_receive : list_hook<large_receive>, message_channel::outgoing, frame_cache::recycled {
  large_receive(message_channel& c, arrived_message& a, const message_protocol::frame& f) noexcept;

  [[nodiscard]] std::uint64_t tag() const noexcept { return frame.tag; }
  [[nodiscard]] std::size_t length() const noexcept { return std::size_t(terms.length); }

  message_channel* channel;
  arrived_message& slot;
  const loan_terms terms;
  bool is_fetched = false;  ///< or is being fetched
  bool is_withdrawn = false;
  std::unique_ptr<large_message> message;
  remote_mr lent;
  std::uint64_t borrowing = 0;  ///< the agent's number of `lent`
  std::size_t done = 0;         ///< bytes
  std::optional<told_request<read_request<1>, large_receive>> reading;
};

}  // namespace cordma::detail
