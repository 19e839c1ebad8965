#include "base/caught.hpp"
#include "message_channel.hpp"

#include <endian.h>

namespace cordma::detail {

using message_protocol::header_bytes;
using message_protocol::kind;
using message_protocol::throw_bad_frame;

inline void message_channel::release_credits(std::uint32_t taken) {
  if (!credits_.try_release(taken)) [[unlikely]]
    throw_bad_frame("took what was not sent");
}

[[gnu::always_inline]] inline void message_channel::take(arrived_message& a, const ibv_wc& wc) {
  if (wc.opcode != IBV_WC_RECV) [[unlikely]]
    throw_bad_frame("a WRITE with immediate data");
  const std::span<const std::byte> bytes = buffers_.bytes(a, wc.byte_len);
  a.word_is = message_content::word_kind::none;
  if ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) [[unlikely]] {
    a.word = be32toh(wc.imm_data);
    a.word_is = message_content::word_kind::immediate;
  } else if ((wc.wc_flags & IBV_WC_WITH_INV) != 0) [[unlikely]] {
    a.word = wc.invalidated_rkey;
    a.word_is = message_content::word_kind::invalidated;
  }
  if (!message_protocol::is_data(bytes)) [[unlikely]]
    return take_other(a, bytes);
  if (!failed_) [[likely]] {
    release_credits(message_protocol::taken_in(bytes));
  } else if (large_.has_gap) {
    return buffers_.release(a);
  }
  a.bytes = bytes.subspan(header_bytes);
  if (!behind_.empty()) [[unlikely]] {
    behind_.push_back(a);
    return announce_whole();
  }
  inbox_.push_back(a);
  on_message();
}

void message_channel::on_receive(std::uint32_t number, const ibv_wc& wc) noexcept {
  if (wc.status != IBV_WC_SUCCESS) return;
  channel_ref stay{*this};
  arrived_message& a = buffers_.take(number);
  const std::uint32_t used = credits_.count_received();
  try {
    if (used > buffers_.credit()) [[unlikely]]
      throw_bad_frame("has no credit");
    take(a, wc);
  } catch (...) {
    buffers_.release(a);
    return break_connection(caught("message_stream"));
  }
  if (credits_.is_growth_due(used)) [[unlikely]]
    grow();
  post_spare_soon();
  pump();
}

/// Takes any frame but data.
void message_channel::take_other(arrived_message& a, std::span<const std::byte> bytes) {
  const frame f = message_protocol::decode(bytes);
  // After a failure only messages that had arrived are of use.
  if (failed_) {
    large_.has_gap |= f.kind == kind::announce && order_ == order::as_sent;
    return buffers_.release(a);
  }
  release_credits(f.taken);
  switch (f.kind) {
    case kind::announce: return on_announce(a, f);
    case kind::taken: on_taken(f, a.invalidated()); break;
    case kind::withdraw: on_withdraw(f); break;
    case kind::data: CORDMA_ASSERT(false, "data is handled by `take`"); break;
    case kind::credit: credits_.count_credit_frame(); break;
    case kind::control: on_control(bytes.subspan(header_bytes)); break;
    case kind::grant: on_grant(f); break;
    case kind::shrink: on_shrink(f); break;
    case kind::shrunk: on_shrunk(f); break;
  }
  static_cast<void>(consume(a));  // `on_receive` pumps.
}

void message_channel::on_control(std::span<const std::byte> /*bytes*/) {
  throw_bad_frame("control, which a stream has none of");
}

/// Moves the messages that are ready, and need not wait for others, from `behind_` to `inbox_`.
void message_channel::announce_whole() noexcept {
  constexpr auto is_whole = [](const arrived_message& a) { return a.awaited == nullptr; };
  for (;;) {
    if (behind_.empty()) return;
    arrived_message* next = &behind_.front();
    if (!is_whole(*next)) next = order_ == order::any ? behind_.find(is_whole) : nullptr;
    if (next == nullptr) return;
    next->list_hook<arrived_message>::unlink();
    inbox_.push_back(*next);
    on_message();
  }
}

/// Lets the frame's buffer receive again. True: `pump` may have more to tell the peer.
inline bool message_channel::consume(arrived_message& a) noexcept {
  if (failed_) {
    buffers_.release(a);
    return false;
  }
  const std::uint32_t taken = buffers_.put_back(a);
  credits_.count_taken(taken);
  post_spare_soon();
  return taken != 0;
}

void message_channel::give_back(arrived_message& a) noexcept {
  if (consume(a)) pump();
}

const_local_mr_slice message_channel::slice_of(const arrived_message& a) const noexcept {
  return buffers_.slice(a, header_bytes, a.bytes.size());
}

stream_message message_channel::deliver_large(arrived_message& a) noexcept {
  large_message& whole = *a.large.release();
  whole.word = a.word;
  whole.word_is = a.word_is;
  give_back(a);
  if (order_ == order::as_sent) {
    drop_large();
    return stream_message{{}, whole};
  }
  // Large messages that handlers have count as fetched, until `drop_large`.
  fetch_next();
  return stream_message{channel_ref{*this}, whole};
}

void message_channel::drop_large() noexcept {
  --large_.fetched;
  fetch_next();
}

std::coroutine_handle<> message_channel::on_spare(waiter& self) noexcept {
  message_channel& c = static_cast<spare_poster&>(self).channel;
  if (c.failed_) return std::noop_coroutine();
  const channel_ref stay{c};
  c.credits_.count_taken(c.buffers_.post_spare());
  c.pump();
  return std::noop_coroutine();
}

}  // namespace cordma::detail
