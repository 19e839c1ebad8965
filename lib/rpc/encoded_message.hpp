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

/// A header that is said beside the messages. Made by `new`, goes with what it was sent by.
struct call_note final : outgoing_frame, frame_cache::recycled {
  explicit call_note(const header& h) noexcept {
    frame.kind = message_protocol::kind::control;
    call_protocol::encode(h, open_head(call_protocol::header_bytes));
    on_posted = [](outgoing_frame& self, const failure*) noexcept {
      delete static_cast<call_note*>(&self);
    };
  }
  stream_message kept;  ///< until it is sent
};

/// A header and a value, sent as one message: from where the value lies, or from memory that it is
/// encoded into, or, when it is longer than the peer's buffers, by rendezvous. Destroying it takes
/// it back.
class encoded_message : private outgoing_frame {
 public:
  /// It is on its way, and the value may go; or, with a reason, will never be. May destroy it.
  using function = void (*)(encoded_message& self, const failure* why) noexcept;
  explicit encoded_message(function on_sent) noexcept : on_sent_{on_sent} {
    frame.kind = message_protocol::kind::data;
    outgoing_frame::on_posted = &on_posted;
  }
  encoded_message(encoded_message&&) = delete;
  ~encoded_message() { take_back(); }

  /// The peer knows nothing of it.
  void begin_anew() noexcept { is_known_ = false; }
  /// What it begins with, first a header.
  void begin(const header& h) noexcept {
    immediate.reset();
    is_invalidation = is_fenced = false;
    lent.count = 0;
    call_protocol::encode(h, open_head(call_protocol::header_bytes));
  }
  /// It goes behind the bind of what it lends.
  void add(inline_grant& loan) noexcept {
    loan_protocol::encode(loan.terms(), extend_head(loan_protocol::terms_bytes));
    lent.all[lent.count++] = &loan;
  }
  /// It goes when the READs posted before it have ended.
  void fence() noexcept { is_fenced = true; }
  /// With it the peer's window of that key ends: only what fits a buffer can do that.
  void invalidate(std::uint32_t rkey) noexcept {
    immediate = rkey;
    is_invalidation = true;
  }
  void invalidate_nothing() noexcept { immediate.reset(); }
  /// May tell `on_sent` before it returns. `value` is there until then. \errors errc::wrong_length:
  ///   longer than the peer takes; what the codec and the allocator throw.
  void send(message_channel& channel, const encodable_ref& value) {
    const bool lies = value.lies_at != nullptr || value.size_bytes == 0;
    if (!lies || head_bytes + value.size_bytes > channel.peer().buffer_bytes) [[unlikely]]
      return send_made(channel, value);
    bytes = {value.lies_at, value.size_bytes};
    channel.send(*this);
  }
  /// Whether the peer may know of it.
  [[nodiscard]] bool is_known() const noexcept { return is_known_; }
  void take_back() noexcept;

 private:
  struct sending;
  /// From memory that is made for it.
  void send_made(message_channel& channel, const encodable_ref& value);
  static void on_posted(outgoing_frame& self, const failure* why) noexcept;

  function on_sent_;
  local_mr encoded_;
  bool is_known_ = false;
  sending* large_ = nullptr;
};

/// What a large one is sent by. The end of the channel may come while its task runs, and take the
/// message back: then it goes when that has returned.
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

  encoded_message* message;  ///< null: nobody is told
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
