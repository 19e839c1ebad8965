#include "base/caught.hpp"
#include "base/failures.hpp"
#include "memory/guarded_copy.hpp"
#include "message_channel.hpp"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace cordma::detail {

using message_protocol::header_bytes;
using message_protocol::kind;

namespace {

/// Every 16th message that lies in a copy is signaled: the CQE frees 16 copies.
/// The send queue signals often enough for all other messages, which own no memory.
constexpr std::uint32_t copies_per_signal = 16;

/// A message has at most a head, and bytes that lie elsewhere.
constexpr std::size_t slices_per_message = 2;

/// False for frames that only the two channels know of.
bool is_of_user(const outgoing_frame& o) noexcept {
  return o.frame.kind == kind::data || o.frame.kind == kind::announce;
}

/// Bytes of a request that is posted inline: the device does not read them later.
const_local_mr_slice unregistered(const std::byte* at, std::size_t size) noexcept {
  return local_mr_slice{const_cast<std::byte*>(at), size, nullptr, 0, 0};
}

}  // namespace

/// Posts `message`, and ahead of it the binds of what it lends.
inline bool message_channel::post_behind_binds(const outgoing_frame& o,
                                               const wr_summary& message) noexcept {
  constexpr std::size_t requests_max = inline_grant::per_message_max + 1;
  std::array<std::optional<bind_request>, inline_grant::per_message_max> binds;
  std::array<wr_summary, requests_max> requests;
  std::array<ibv_send_wr, requests_max> wrs;
  std::array<ibv_sge, slices_per_message + inline_grant::per_message_max> sges;
  std::size_t count = 0;
  for (unsigned n = 0; n < o.lent.count; ++n) {
    const inline_grant& lent = *o.lent.all[n];
    if (!lent.needs_bind()) continue;
    requests[count] = binds[count].emplace(lent.bind()).summary();
    requests[count].local = {};  // The grant holds the memory longer than this request would.
    ++count;
  }
  requests[count++] = message;
  return qp_->post_detached({{requests.data(), count}, wrs.data(), sges.data()});
}

inline bool message_channel::post_inline(outgoing_frame& o, wr_summary& message,
                                         std::size_t head_bytes) noexcept {
  const bool is_together = o.bytes.size() <= o.head.size() - head_bytes;
  if (is_together && !o.bytes.empty())
    std::memcpy(&o.head[head_bytes], o.bytes.data(), o.bytes.size());
  const std::array<const_local_mr_slice, slices_per_message> pieces{
      unregistered(o.head.data(), head_bytes + (is_together ? o.bytes.size() : 0)),
      unregistered(o.bytes.data(), is_together ? 0 : o.bytes.size())};
  message.local = pieces;
  return post_behind_binds(o, message);
}

/// Posts a frame. False: the send queue has no room. \errors what the allocator throws, for a
///   message that is too long to go inline.
[[gnu::always_inline]] inline bool message_channel::post(outgoing_frame& o, unsigned flags) {
  o.frame.taken = credits_.taken();
  std::size_t head_bytes = header_bytes + o.head_bytes;
  if (message_protocol::size_of(o.frame.kind) == header_bytes) [[likely]] {
    message_protocol::encode_header(o.frame, o.head.data());
  } else {
    std::ranges::copy(message_protocol::encode(o.frame), o.head.begin());
    head_bytes = message_protocol::size_of(o.frame.kind);
  }
  if (o.is_fenced) [[unlikely]]
    flags |= IBV_SEND_FENCE;
  wr_summary message{.kind = request_kind::send, .opcode = IBV_WR_SEND, .send_flags = flags};
  if (o.immediate) {
    message.opcode = o.is_invalidation ? IBV_WR_SEND_WITH_INV : IBV_WR_SEND_WITH_IMM;
    message.immediate = o.is_invalidation ? *o.immediate : htobe32(*o.immediate);
  }
  if (head_bytes + o.bytes.size() <= inline_max_) [[likely]] {
    if (!post_inline(o, message, head_bytes)) [[unlikely]]
      return false;
  } else if (!post_copy(o, message, head_bytes)) {
    return false;
  }
  for (; o.lent.count > 0; --o.lent.count) o.lent.all[o.lent.count - 1]->posted();
  credits_.count_sent();
  return true;
}

/// Posts a frame for which there is credit, or refuses it. False: the send queue has no room, and
/// the frame stays in its list.
[[gnu::always_inline]] inline bool message_channel::try_post(outgoing_frame& o) noexcept {
  try {
    if (!post(o)) [[unlikely]]
      return false;
  } catch (...) {
    o.unlink();
    o.on_posted(o, caught("message_stream"));
    return true;
  }
  o.unlink();
  if (is_of_user(o)) ++counters_.sent;
  o.on_posted(o, std::nullopt);
  return true;
}

void message_channel::send(outgoing_frame& o) noexcept {
  if (failed_) [[unlikely]]
    return o.on_posted(o, failed_);
  const channel_ref stay{*this};
  if (!is_of_user(o)) [[unlikely]] {
    control_.push_back(o);
    return pump();
  }
  const std::uint64_t posted = counters_.sent;
  // Usually nothing waits. The frame is listed all the same: an end of the connection meanwhile
  // must find it.
  const bool is_next = !has_waiting() && credits_.may_send_message();
  outbox_.push_back(o);
  if (is_next && try_post(o)) [[likely]]
    return;
  pump();
  if (counters_.sent != posted || is_pumping_) return;
  ++counters_.credit_waits;
  if (qp_ != nullptr) qp_->driver().tally().waited_for_credit();
}

/// `on_posted` of a frame may destroy anything but this channel.
void message_channel::pump_all() noexcept {
  if (is_pumping_) return;  // Called by an `on_posted`: the loop goes on when that returns.
  const channel_ref stay{*this};
  is_pumping_ = true;
  while (!failed_ && post_next()) {
  }
  is_pumping_ = false;
  if (!failed_ && credits_.needs_telling()) post_credit();
}

void message_channel::post_credit(unsigned flags) noexcept {
  outgoing_frame credit;
  credit.frame.kind = kind::credit;
  if (!credits_.may_send(0) || !post(credit, flags)) return;
  credits_.mark_credit_frame();
  ++counters_.credit_frames;
}

void message_channel::on_idle_awaited() noexcept {
  if (is_open()) post_credit(IBV_SEND_SIGNALED);
}

/// The next frame for which there is credit.
outgoing_frame* message_channel::next() noexcept {
  if (credits_.has_shrink_request() && credits_.may_send(1)) return &shrunk();
  if (!control_.empty() && credits_.may_send(1)) return &control_.front();
  if (!outbox_.empty() && credits_.may_send_message()) return &outbox_.front();
  return nullptr;
}

/// True if the next frame needs more than one place in the send queue.
bool message_channel::lacks_room() noexcept {
  if (!is_open()) return false;
  const outgoing_frame* const o = next();
  return o != nullptr && o->lent.count != 0;
}

bool message_channel::post_next() noexcept {
  outgoing_frame* const o = next();
  return o != nullptr && try_post(*o);
}

bool message_channel::post_copy(const outgoing_frame& o, wr_summary& message,
                                std::size_t head_bytes) {
  if (!qp_->can_post_detached(1 + o.lent.count))
    return false;  // Without room a copy is made in vain.
  local_mr copy = memory_->allocate_uninitialized(head_bytes + o.bytes.size());
  std::byte* const to = copy.bytes().data();
  std::memcpy(to, o.head.data(), head_bytes);
  if (!o.bytes.empty()) std::memcpy(to + head_bytes, o.bytes.data(), o.bytes.size());
  // The request holds the copy until it has ended.
  const const_local_mr_slice whole = copy.slice();
  message.local = {&whole, 1};
  if (unsignaled_copies_ + 1 == copies_per_signal) message.send_flags |= IBV_SEND_SIGNALED;
  if (!post_behind_binds(o, message)) return false;
  unsignaled_copies_ = (message.send_flags & IBV_SEND_SIGNALED) != 0 ? 0 : unsignaled_copies_ + 1;
  return true;
}

// ---- awaited

namespace {

/// A message that fits a buffer of the peer's. Its task owns it.
struct small_send : outgoing_frame {
  small_send(scheduler& s, std::span<const std::byte> all,
             std::optional<std::uint32_t> imm) noexcept
      : ended{s} {
    frame.kind = kind::data;
    bytes = all;
    immediate = imm;
    on_posted = &on_end;
  }
  static void on_end(outgoing_frame& self, const std::optional<failure>& why) noexcept {
    auto& s = static_cast<small_send&>(self);
    if (why) s.why = why;  // An assignment would copy all bytes of no failure.
    s.ended.set();
  }
  event ended;
  std::optional<failure> why;
};

}  // namespace

void message_channel::check_length(std::size_t length) const {
  if (length <= peer().message_bytes_max) return;
  cordma::detail::throw_failure(
      errc::wrong_length, "send",
      cordma::detail::detail_text("%zu bytes, the peer takes messages of up to %zu", length,
                                  peer().message_bytes_max));
}

task<> message_channel::send_bytes(channel_ref self, std::span<const std::byte> bytes,
                                   std::optional<std::uint32_t> immediate) {
  message_channel& channel = *self.get();
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};
  if (!channel.opened_.is_set() || channel.failed_) co_await channel.opened();
  if (bytes.size() <= channel.peer().buffer_bytes) {
    small_send message{channel.executor_, bytes, immediate};
    channel.send(message);
    if (!message.ended.is_set()) co_await message.ended.wait();
    if (message.why) throw error{*message.why};
    co_return;
  }
  channel.check_length(bytes.size());
  // The caller may end its wait before the peer has read the bytes, so the peer reads a copy.
  local_mr copy = channel.memory_->allocate_uninitialized(bytes.size());
  std::memcpy(copy.bytes().data(), bytes.data(), bytes.size());
  co_await send_large(std::move(self), std::move(copy), immediate);
}

task<> message_channel::send_memory(channel_ref self, const_local_mr_slice bytes,
                                    std::optional<std::uint32_t> immediate) {
  message_channel& channel = *self.get();
  local_mr kept;
  if (bytes.is_held()) kept = local_mr::keep(bytes);
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};
  if (!channel.opened_.is_set() || channel.failed_) co_await channel.opened();
  if (bytes.size_bytes() <= channel.peer().buffer_bytes) {
    if (bytes.is_held() && bytes.block()->is_device_only()) {
      local_mr copy = channel.memory_->allocate_uninitialized(bytes.size_bytes());
      guarded_copy(copy.bytes().data(), bytes.bytes());
      kept = std::move(copy);
      bytes = kept;
    }
    small_send message{channel.executor_, bytes.bytes(), immediate};
    channel.send(message);
    if (!message.ended.is_set()) co_await message.ended.wait();
    if (message.why) throw error{*message.why};
    co_return;
  }
  channel.check_length(bytes.size_bytes());
  if (!bytes.is_held()) kept = local_mr::keep(bytes);  // Throws: says what is wrong.
  co_await send_large(std::move(self), std::move(kept), immediate);
}

}  // namespace cordma::detail
