#pragma once

#include "call_frame.hpp"
#include "message_channel.hpp"

#include <cordma/rpc/codec.hpp>

namespace cordma::rpc::detail {

using call_protocol::header;
using cordma::detail::arrived_message;
using cordma::detail::channel_ref;
using cordma::detail::channel_resources;
using cordma::detail::message_channel;

/// A header and a value, sent as one message: from where the value lies, or from memory that it is
/// encoded into, or, when it is longer than the peer's buffers, by rendezvous. Destroying it takes
/// it back.
class encoded_message : private message_channel::outgoing {
 public:
  /// It is on its way, and the value may go; or, with a reason, will never be. May destroy it.
  using function = void (*)(encoded_message& self, const failure* why) noexcept;
  explicit encoded_message(function on_sent) noexcept : on_sent_{on_sent} {
    frame.kind = message_protocol::kind::data;
    outgoing::on_posted = &on_posted;
  }

  /// May tell `on_sent` before it returns. `value` is there until then. \errors errc::wrong_length:
  ///   longer than the peer takes; what the codec and the allocator throw.
  void send(message_channel& channel, const header& h, const encodable_ref& value) {
    call_protocol::encode(h, open_head());
    const bool lies = value.lies_at != nullptr || value.size_bytes == 0;
    if (!lies || call_protocol::header_bytes + value.size_bytes > channel.peer().buffer_bytes)
      return send_made(channel, value);
    bytes = {value.lies_at, value.size_bytes};
    channel.send(*this);
  }
  /// Whether the peer knows nothing of it yet.
  [[nodiscard]] bool is_queued() const noexcept { return list_hook<outgoing>::is_linked(); }
  void take_back() noexcept {
    list_hook<outgoing>::unlink();
    large_.work.reset();
    encoded_.reset();
  }

 private:
  /// What a large one is sent by.
  struct sending : waiter {
    explicit sending(encoded_message& m) noexcept : waiter{&on_ended}, message{m} {}
    static std::coroutine_handle<> on_ended(waiter& self) noexcept;
    encoded_message& message;
    std::optional<task<>> work;
  };
  /// From memory that is made for it.
  void send_made(message_channel& channel, const encodable_ref& value);
  static void on_posted(outgoing& self, const failure* why) noexcept;

  function on_sent_;
  local_mr encoded_;
  sending large_{*this};
};

}  // namespace cordma::rpc::detail
