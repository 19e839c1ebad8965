#pragma once

#include "message_channel.hpp"

namespace cordma::detail {

/// A large message that this end sends. A `large_handle` owns it; once that has left, the channel
/// does.
///
/// States, as the members say them:
///   waiting    `announce` waits for credit.
///   announced  by `on_announced`, when `announce` is posted: the peer reads the loan.
///   answered   by `on_taken`, or by `end_large` when the connection has failed.
///   ended      by `end`, when answered and nothing is lent any more: the owner is told.
///   abandoned  besides announced: the owner has left, which sends `withdraw`. `end` deletes it.
struct large_send : list_hook<large_send>, outgoing_frame, inline_grant, frame_cache::recycled {
  /// \errors as `lender::lend_inline`.
  large_send(message_channel& c, local_mr memory, const large_options& how);

  [[nodiscard]] std::uint64_t tag() const noexcept { return frame.tag; }
  void end() noexcept;

  message_channel* channel;
  void (*const on_ended)(large_send&) noexcept;
  void* const owner;
  bool is_announced = false;  ///< the peer may know of it
  bool is_answered = false;
  bool is_abandoned = false;
  std::optional<failure> why;  ///< why the peer does not have it
};

/// A large message that the peer sends. The channel owns it.
///
/// States, as the channel's lists say them:
///   announced  by `on_announce`: waits in `announced`, for others to be fetched, or for a task
///              that asks.
///   offered    by `fetch_next`, to `fill`: its task says where the bytes go.
///   fetching   by `fetch_next`, or by `fill`: READs bring the bytes, one after the other. When
///              `fill` ends early, the message is announced again, by `offer_again`.
///   answering  by `answer`, with the message, or without one (`give_up`): `taken` waits for
///              credit. This state and the two before it are in `fetching`.
///   deleted    by `on_answered`, when `taken` is posted, or by `end_large`.
struct large_receive : list_hook<large_receive>, outgoing_frame, frame_cache::recycled {
  large_receive(message_channel& c, arrived_message& a, const message_protocol::frame& f) noexcept;

  [[nodiscard]] std::uint64_t tag() const noexcept { return frame.tag; }
  [[nodiscard]] std::size_t length() const noexcept { return std::size_t(terms.length); }
  [[nodiscard]] bool is_read() const noexcept { return done_bytes == length(); }

  message_channel* channel;
  arrived_message& slot;
  const loan_terms terms;
  bool is_fetched = false;  ///< counted in `fetched`
  bool is_withdrawn = false;
  pending_fill* fill = nullptr;  ///< a wait that has it read into memory of its task's choice
  local_mr_slice into;           ///< where the READs put it
  std::unique_ptr<large_message> message;
  remote_mr lent;
  std::uint64_t borrowing = 0;  ///< the agent's number of `lent`
  std::size_t done_bytes = 0;
  std::optional<told_request<read_request<1>, large_receive>> reading;
};

}  // namespace cordma::detail
