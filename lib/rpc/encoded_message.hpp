#pragma once

#include "call_frame.hpp"
#include "messages/rendezvous.hpp"

#include <cordma/detail/rpc/encodable_ref.hpp>

namespace cordma::rpc::detail {

using call_protocol::header;
using cordma::detail::arrived_message;
using cordma::detail::channel_ref;
using cordma::detail::channel_resources;
using cordma::detail::message_channel;
using cordma::detail::outgoing_frame;

/// A `control` frame of one header. Made by `new`; deletes itself when it is posted.
struct call_note final : outgoing_frame, frame_cache::recycled {
  explicit call_note(const header& h) noexcept {
    frame.kind = message_protocol::kind::control;
    call_protocol::encode(h, open_head(call_protocol::header_bytes));
    on_posted = [](outgoing_frame& self, const std::optional<failure>&) noexcept {
      delete static_cast<call_note*>(&self);
    };
  }
  stream_message kept;  ///< kept until the frame is posted
};

/// A header and a value, sent as one message: from where the value lies, or from memory that it is
/// encoded into. A message that is longer than the peer's buffers goes by rendezvous. Destroying
/// this withdraws the message, if that is not posted.
class encoded_message : public outgoing_frame {
 public:
  /// The message is posted and the value may go or, when `why` is set, it never will be. May
  /// destroy the message.
  using function = void (*)(encoded_message& self, const std::optional<failure>& why) noexcept;
  explicit encoded_message(function on_sent) noexcept : on_sent_{on_sent} {
    frame.kind = message_protocol::kind::data;
    outgoing_frame::on_posted = &on_posted;
  }
  encoded_message(encoded_message&&) = delete;

  /// Forgets that the last message may be known to the peer.
  void begin_anew() noexcept { is_known_ = false; }
  /// Begins the head: first a header.
  void begin(const header& h) noexcept {
    immediate.reset();
    is_invalidation = is_fenced = false;
    lent.count = 0;
    call_protocol::encode(h, open_head(call_protocol::header_bytes));
  }
  /// Adds the trace context, which precedes the terms of loans.
  void add(const trace_context& context) noexcept {
    call_protocol::encode(context, extend_head(call_protocol::trace_bytes));
  }
  /// Adds the terms of a loan. Its bind is posted ahead of the message.
  void add(inline_grant& loan) noexcept {
    message_protocol::encode_loan(loan.terms(), extend_head(message_protocol::loan_bytes));
    lent.all[lent.count++] = &loan;
  }
  /// May call `on_sent` before it returns. `value` must live until then. \errors
  /// errc::wrong_length:
  ///   longer than the peer takes; what the codec and the allocator throw.
  void send(message_channel& channel, const encodable_ref& value) {
    const bool lies = value.lies_at != nullptr || value.size_bytes == 0;
    if (!lies || head_bytes + value.size_bytes > channel.peer().buffer_bytes) [[unlikely]]
      return send_made(channel, value);
    bytes = {value.lies_at, value.size_bytes};
    channel.send(*this);
  }
  /// True if the peer may know of the message.
  [[nodiscard]] bool is_known() const noexcept {
    return is_known_ || (large_ != nullptr && large_->is_announced);
  }
  void take_back() noexcept {
    list_hook<outgoing_frame>::unlink();
    is_known_ = is_known();
    large_.reset();
    encoded_.reset();
  }

 private:
  /// Sends from memory that is allocated for the message.
  void send_made(message_channel& channel, const encodable_ref& value);
  static void on_posted(outgoing_frame& self, const std::optional<failure>& why) noexcept;
  static void on_large_ended(cordma::detail::large_send& s) noexcept;

  function on_sent_;
  local_mr encoded_;
  bool is_known_ = false;
  cordma::detail::large_handle large_;
};

}  // namespace cordma::rpc::detail
