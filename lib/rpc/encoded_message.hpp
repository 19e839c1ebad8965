#pragma once

#include "call_frame.hpp"
#include "messages/message_channel.hpp"

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
    on_posted = [](outgoing_frame& self, const failure*) noexcept {
      delete static_cast<call_note*>(&self);
    };
  }
  stream_message kept;  ///< kept until the frame is posted
};

/// A header and a value, sent as one message: from where the value lies, or from memory that it is
/// encoded into. A message that is longer than the peer's buffers goes by rendezvous. Destroying
/// this withdraws the message, if that is not posted.
class encoded_message : private outgoing_frame {
 public:
  /// The message is posted and the value may go or, when `why` is set, it never will be. May
  /// destroy the message.
  using function = void (*)(encoded_message& self, const failure* why) noexcept;
  explicit encoded_message(function on_sent) noexcept : on_sent_{on_sent} {
    frame.kind = message_protocol::kind::data;
    outgoing_frame::on_posted = &on_posted;
  }
  encoded_message(encoded_message&&) = delete;
  ~encoded_message() { take_back(); }

  /// Forgets that the last message may be known to the peer.
  void begin_anew() noexcept { is_known_ = false; }
  /// Begins the head: first a header.
  void begin(const header& h) noexcept {
    immediate.reset();
    is_invalidation = is_fenced = false;
    lent.count = 0;
    call_protocol::encode(h, open_head(call_protocol::header_bytes));
  }
  /// Adds the terms of a loan. Its bind is posted ahead of the message.
  void add(inline_grant& loan) noexcept {
    loan_protocol::encode(loan.terms(), extend_head(loan_protocol::terms_bytes));
    lent.all[lent.count++] = &loan;
  }
  /// Sends it when the READs posted before it have ended.
  void fence() noexcept { is_fenced = true; }
  /// Invalidates the peer's window of that rkey, if the message fits a buffer of the peer.
  void invalidate(std::uint32_t rkey) noexcept {
    immediate = rkey;
    is_invalidation = true;
  }
  void invalidate_nothing() noexcept { immediate.reset(); }
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
  [[nodiscard]] bool is_known() const noexcept { return is_known_; }
  void take_back() noexcept;

 private:
  struct sending;
  /// Sends from memory that is allocated for the message.
  void send_made(message_channel& channel, const encodable_ref& value);
  static void on_posted(outgoing_frame& self, const failure* why) noexcept;

  function on_sent_;
  local_mr encoded_;
  bool is_known_ = false;
  sending* large_ = nullptr;
};

/// Sends a large message by a task. When the channel fails while the task runs, the message may
/// leave: this is then deleted in a later event-loop iteration.
struct encoded_message::sending final : waiter, frame_cache::recycled {
  sending(encoded_message& m, message_channel& c, local_mr whole)
      : waiter{&on_ended},
        message{&m},
        channel{c},
        work{message_channel::send_large(
            channel_ref{c}, std::move(whole), {},
            {.is_fenced = m.is_fenced, .lent = m.lent, .is_announced = &m.is_known_})} {}
  void leave() noexcept;
  static std::coroutine_handle<> on_ended(waiter& self) noexcept;

  encoded_message* message;  ///< null: it has left, and nobody is told
  channel_ref channel;
  task<> work;
  bool is_starting = false;
};

inline void encoded_message::take_back() noexcept {
  list_hook<outgoing_frame>::unlink();
  if (large_ != nullptr) [[unlikely]]
    std::exchange(large_, nullptr)->leave();
  encoded_.reset();
}

}  // namespace cordma::rpc::detail
