#include "message_channel.hpp"

#include "rendezvous.hpp"

#include <cordma/coro/with_timeout.hpp>
#include <cordma/detail/connection/handshake.hpp>

#include <endian.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstring>
#include <new>
#include <utility>

namespace cordma::detail {

using message_protocol::credits_reserved;
using message_protocol::header_bytes;
using message_protocol::kind;
using message_protocol::throw_bad_frame;

namespace {

/// Of so many messages that lie in copies the last is signaled: its CQE frees the copies. The send
/// queue sees to all other messages, which own no memory.
constexpr std::uint32_t copies_per_signal = 16;

cordma::agent& agent_of(connection& conn) {
  if (cordma::agent* const a = conn.agent()) return *a;
  throw error{{.code = errc::not_supported,
               .call = "message_stream",
               .detail = "this side or the peer has no agent: connection_options::agent.enabled"}};
}

/// A pool's buffers have all the same size, and who takes from it starts with a share.
stream_options with_pool(stream_options options, receive_share& share) {
  const shared_receives& pool = share.pool();
  check_option("shared_receives_options", "buffer_bytes",
               static_cast<long long>(pool.buffer_bytes()),
               header_bytes + message_protocol::buffer_bytes_min,
               header_bytes + message_protocol::buffer_bytes_max);
  check_option("shared_receives_options", "share_min", pool.share_min(),
               message_protocol::credits_min, message_protocol::credits_max);
  check_option("stream_options", "depth", options.depth, share.credit(),
               message_protocol::credits_max);
  options.buffer_bytes = pool.buffer_bytes() - header_bytes;
  return options;
}

stream_options checked(const stream_options& wanted, queue_pair& qp) {
  const stream_options options = qp.share() != nullptr ? with_pool(wanted, *qp.share()) : wanted;
  check(options);
  const verbs::queue_pair_capabilities& caps = qp.verbs().capabilities();
  // Frames must not need memory, which may be all in use.
  check_option("queue_pair_capabilities", "inline_max", caps.inline_max,
               message_protocol::frame_bytes_max, INT_MAX);
  check_option("queue_pair_capabilities", "send_sge_max", caps.send_sge_max, 2, INT_MAX);
  if (qp.share() == nullptr) {
    check_option("stream_options", "depth", options.depth, message_protocol::credits_min,
                 qp.receives().depth());
  }
  return options;
}

/// Not a frame that only the two channels know of.
bool is_of_user(const message_channel::outgoing& o) noexcept {
  return o.frame.kind == kind::data || o.frame.kind == kind::announce;
}

/// The head, and what follows it elsewhere.
constexpr std::size_t slices_per_message = 2;

/// Bytes for a request that goes inline: no device reads them later.
const_local_mr_slice unregistered(const std::byte* at, std::size_t size) noexcept {
  return local_mr_slice{const_cast<std::byte*>(at), size, nullptr, 0, 0};
}

/// In one READ. What the peer says must not make us do any number of them.
std::size_t readable(const connection& conn) noexcept {
  constexpr std::uint64_t least = 64 << 10;
  return std::size_t(std::min(conn.local_hello().message_max_bytes,
                              std::max(conn.peer_hello().message_max_bytes, least)));
}

}  // namespace

channel_resources message_channel::resources_of(connection& conn) {
  return {.data = conn.qp(),
          .agent = agent_of(conn),
          .memory = conn.memory(),
          .read_bytes_max = readable(conn)};
}

message_channel::message_channel(const channel_resources& r, const stream_options& options,
                                 order how)
    : waiter{&on_opened},
      qp_{&r.data},
      agent_{&r.agent},
      home_{r.data.driver().home()},
      memory_{&r.memory},
      options_{checked(options, r.data)},
      order_{how},
      inline_max_{r.data.verbs().capabilities().inline_max},
      read_bytes_max_{r.read_bytes_max},
      buffers_{r.data, r.memory, options_.depth, header_bytes + options_.buffer_bytes},
      opened_{home_} {
  keep_peer_to(buffers_.credit());
}

/// Apart from the constructor, for what may be told here is the derived class's.
void message_channel::begin() {
  qp_->hand_messages_to(*this);
  buffers_.post_all();
  if (failed_) return;
  agent_->send_note(
      encode(stream_terms{buffers_.credit(), options_.buffer_bytes, options_.message_bytes_max}));
  opening_.emplace(agent_->note_arrived().wait());
  if (opening_->start(*this, {})) on_opened(*this);
}

message_channel::~message_channel() {
  for (intrusive_list<arrived_message>* all : {&inbox_, &behind_})
    while (!all->empty()) buffers_.let_go(all->pop_front());
}

void message_channel::on_gone() noexcept {
  if (!failed_) on_failure();
  qp_ = nullptr;
  buffers_.leave();
  release();
}

void message_channel::on_failure() noexcept {
  const request_outcome& reason = qp_->failure_reason();
  failed_ = bad_frame_    ? *bad_frame_
            : reason.code ? reason.to_failure(qp_->verbs().num())
                          : failure{.code = errc::closed, .call = "close"};
  channel_ref stay{*this};
  agent_ = nullptr;
  opening_.reset();
  for (intrusive_list<outgoing>* all : {&control_, &outbox_}) {
    while (!all->empty()) {
      outgoing& o = all->pop_front();
      o.on_posted(o, &*failed_);
    }
  }
  end_large();
  opened_.set();
  on_closed();
}

void message_channel::break_connection(const failure& why) noexcept {
  if (failed_) return;
  bad_frame_ = why;
  qp_->abort({.code = why.code, .call = why.call});
}

// ---- credits
// -------------------------------------------------------------------------------------

std::coroutine_handle<> message_channel::on_opened(waiter& self) noexcept {
  auto& channel = static_cast<message_channel&>(self);
  channel.opening_.reset();
  if (channel.failed_) return std::noop_coroutine();
  try {
    channel.peer_ = decode_terms(*channel.agent_->peer_note());
  } catch (const error& e) {
    channel.break_connection(e.failure());
    return std::noop_coroutine();
  }
  channel.peer_credit_ = channel.peer().messages;
  channel.opened_.set();
  channel_ref stay{channel};
  channel.on_open();
  channel.pump();
  return std::noop_coroutine();
}

inline bool message_channel::post_behind_binds(const outgoing& o,
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
    requests[count].local = {};  // The grant holds the memory for longer than this slot would.
    ++count;
  }
  requests[count++] = message;
  return qp_->post_detached({{requests.data(), count}, wrs.data(), sges.data()});
}

inline bool message_channel::post_inline(outgoing& o, wr_summary& message,
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

/// \errors what the allocator throws, of a message that is too long to go inline.
[[gnu::always_inline]] inline bool message_channel::post(outgoing& o, unsigned flags) {
  o.frame.taken = taken_;
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
  ++sent_;
  told_ = taken_;
  untold_credit_frames_ = 0;
  return true;
}

/// There is credit for it. False: there is no room; it is where it was.
[[gnu::always_inline]] inline bool message_channel::try_post(outgoing& o) noexcept {
  try {
    if (!post(o)) [[unlikely]]
      return false;
  } catch (const error& e) {
    return refuse(o, e.failure());
  } catch (const std::bad_alloc&) {
    return refuse(o, errno_failure(ENOMEM, "message_stream"));
  }
  o.unlink();
  if (is_of_user(o)) ++counters_.sent;
  o.on_posted(o, nullptr);
  return true;
}

void message_channel::send(outgoing& o) noexcept {
  if (failed_) [[unlikely]]
    return o.on_posted(o, &*failed_);
  const channel_ref stay{*this};
  if (!is_of_user(o)) [[unlikely]] {
    control_.push_back(o);
    return pump();
  }
  const std::uint64_t posted = counters_.sent;
  // Mostly nothing waits. In its place all the same: what ends the connection meanwhile tells it.
  const bool is_next = !has_waiting() && may_send_message();
  outbox_.push_back(o);
  if (is_next && try_post(o)) [[likely]]
    return;
  pump();
  if (counters_.sent != posted || is_pumping_) return;
  ++counters_.credit_waits;
  if (qp_ != nullptr) qp_->driver().tally().waited_for_credit();
}

/// What they are told may have anything destroyed, but us.
void message_channel::pump_all() noexcept {
  if (is_pumping_) return;  // By one that we told: we go on when it returns.
  const channel_ref stay{*this};
  is_pumping_ = true;
  while (!failed_ && post_next()) {
  }
  is_pumping_ = false;
  if (!failed_ && needs_telling()) post_credit();
}

std::coroutine_handle<> message_channel::on_spare(waiter& self) noexcept {
  message_channel& c = static_cast<spare_poster&>(self).channel;
  if (c.failed_) return std::noop_coroutine();
  const channel_ref stay{c};
  c.taken_ += c.buffers_.post_spare();
  c.pump();
  return std::noop_coroutine();
}

void message_channel::post_credit(unsigned flags) noexcept {
  outgoing credit;
  credit.frame.kind = kind::credit;
  if (!may_send(0) || !post(credit, flags)) return;
  credit_frame_ = sent_ - 1;
  ++counters_.credit_frames;
}

void message_channel::on_idle_awaited() noexcept {
  if (opened_.is_set() && !failed_) post_credit(IBV_SEND_SIGNALED);
}

message_channel::outgoing* message_channel::next() noexcept {
  if (is_to_shrink() && may_send(1)) return &shrunk();
  if (!control_.empty() && may_send(1)) return &control_.front();
  if (!outbox_.empty() && may_send_message()) return &outbox_.front();
  return nullptr;
}

/// There is credit for it, and it is more than one request.
bool message_channel::lacks_room() noexcept {
  if (!opened_.is_set() || failed_) return false;
  const outgoing* const o = next();
  return o != nullptr && o->lent.count != 0;
}

bool message_channel::post_next() noexcept {
  outgoing* const o = next();
  return o != nullptr && try_post(*o);
}

bool message_channel::post_copy(const outgoing& o, wr_summary& message, std::size_t head_bytes) {
  if (!qp_->can_post_detached(1 + o.lent.count)) return false;  // Before a copy is made in vain.
  local_mr copy = memory_->allocate_uninitialized(head_bytes + o.bytes.size());
  std::byte* const to = copy.bytes().data();
  std::memcpy(to, o.head.data(), head_bytes);
  std::memcpy(to + head_bytes, o.bytes.data(), o.bytes.size());
  // The request holds it until it has ended.
  const const_local_mr_slice whole = copy.slice();
  message.local = {&whole, 1};
  if (unsignaled_copies_ + 1 == copies_per_signal) message.send_flags |= IBV_SEND_SIGNALED;
  if (!post_behind_binds(o, message)) return false;
  unsignaled_copies_ = (message.send_flags & IBV_SEND_SIGNALED) != 0 ? 0 : unsignaled_copies_ + 1;
  return true;
}

bool message_channel::refuse(outgoing& o, const failure& why) noexcept {
  o.unlink();
  o.on_posted(o, &why);
  return true;
}

/// As the peer sees it, so many of its credits for messages are left: the fewer, the sooner it is
/// told of more. A credit frame alone is not answered by one, else two full inboxes would go on for
/// ever.
bool message_channel::are_credits_low() const noexcept {
  const std::uint32_t owed = taken_ - told_;
  const std::uint32_t used = std::min(received_ - told_ + credits_reserved, kept_to_);
  const std::uint32_t left = kept_to_ - used;
  return owed >= std::max(left / 2, owed == untold_credit_frames_ ? 2u : 1u);
}

inline void message_channel::take_credits(std::uint32_t taken) {
  if (taken - taken_by_peer_ > under_way()) [[unlikely]]
    throw_bad_frame("took what was not sent");
  taken_by_peer_ = taken;
}

// ---- receiving
// -----------------------------------------------------------------------------------

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
    take_credits(message_protocol::taken_in(bytes));
  } else if (has_gap_) {
    return buffers_.let_go(a);
  }
  a.bytes = bytes.subspan(header_bytes);
  if (!behind_.empty()) [[unlikely]] {
    behind_.push_back(a);
    return tell_whole();
  }
  inbox_.push_back(a);
  on_message();
}

void message_channel::on_receive(std::uint32_t number, const ibv_wc& wc) noexcept {
  if (wc.status != IBV_WC_SUCCESS) return;
  channel_ref stay{*this};
  arrived_message& a = buffers_.take(number);
  const std::uint32_t used = ++received_ - told_;
  try {
    if (used > buffers_.credit()) [[unlikely]]
      throw_bad_frame("has no credit");
    take(a, wc);
  } catch (const error& e) {
    buffers_.let_go(a);
    return break_connection(e.failure());
  } catch (const std::bad_alloc&) {
    buffers_.let_go(a);
    return break_connection(errno_failure(ENOMEM, "message_stream"));
  }
  if (used >= grow_at_) [[unlikely]]
    grow();
  post_spare_soon();
  pump();
}

/// Any frame but data.
void message_channel::take_other(arrived_message& a, std::span<const std::byte> bytes) {
  const frame f = message_protocol::decode(bytes);
  // After a failure only messages are of use, those that had arrived.
  if (failed_) {
    has_gap_ |= f.kind == kind::announce && order_ == order::as_sent;
    return buffers_.let_go(a);
  }
  take_credits(f.taken);
  switch (f.kind) {
    case kind::announce: return on_announce(a, f);
    case kind::taken: on_taken(f, a.invalidated()); break;
    case kind::withdraw: on_withdraw(f); break;
    case kind::data: CORDMA_ASSERT(false, "data is taken as it comes"); break;
    case kind::credit: ++untold_credit_frames_; break;
    case kind::control: on_control(bytes.subspan(header_bytes)); break;
    case kind::grant: on_grant(f); break;
    case kind::shrink: on_shrink(f); break;
    case kind::shrunk: on_shrunk(f); break;
  }
  static_cast<void>(consume(a));  // `on_receive` looks what there is to tell.
}

void message_channel::on_control(std::span<const std::byte> /*bytes*/) {
  throw_bad_frame("control, which a stream has none of");
}

void message_channel::tell_whole() noexcept {
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

/// Its buffer is for the next frame. Whether there is more to tell the peer.
inline bool message_channel::consume(arrived_message& a) noexcept {
  if (failed_) {
    buffers_.let_go(a);
    return false;
  }
  const std::uint32_t taken = buffers_.put_back(a);
  taken_ += taken;
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
    return {channel_ref{}, whole};
  }
  // Of those that handlers have, no more than of those that wait for them.
  fetch_next();
  return {channel_ref{*this}, whole};
}

void message_channel::drop_large() noexcept {
  --fetched_;
  fetch_next();
}

// ---- sending
// -------------------------------------------------------------------------------------

bool message_channel::send_op::start(waiter& w, const environment& env) noexcept {
  was_stopped_ = env.stop.stop_requested();
  if (was_stopped_) return true;
  channel_.send(*this);
  if (has_ended_) return true;
  begin(w, {env.scheduler != nullptr ? env.scheduler : &channel_.home_, env.stop});
  return false;
}

void message_channel::send_op::on_end(outgoing& self, const failure* why) noexcept {
  auto& op = static_cast<send_op&>(self);
  op.has_ended_ = true;
  if (why != nullptr) op.why_ = *why;
  if (op.is_waiting()) op.end();
}

void message_channel::send_op::on_stop(stop_callback& self) noexcept {
  auto& op = static_cast<send_op&>(self);
  op.list_hook<outgoing>::unlink();
  op.was_stopped_ = true;
  op.end();
}

/// Until the peer has told what it takes.
task<> message_channel::opened() {
  const auto outcome =
      co_await as_result(with_timeout(opened_.wait(), options_.open_timeout, &home_));
  if (outcome.is_cancelled()) throw cancelled{};
  if (failed_) throw error{*failed_};
  if (outcome.has_value()) co_return;
  char text[120];
  std::snprintf(text, sizeof text, "the peer made no message stream of this connection in %lld ms",
                static_cast<long long>(options_.open_timeout.count()));
  throw error{{.code = errc::timed_out, .call = "send", .detail = text}};
}

void message_channel::check_length(std::size_t length) const {
  if (length <= peer().message_bytes_max) return;
  char text[100];
  std::snprintf(text, sizeof text, "%zu bytes, the peer takes messages of up to %zu", length,
                peer().message_bytes_max);
  throw error{{.code = errc::wrong_length, .call = "send", .detail = text}};
}

task<> message_channel::send_bytes(channel_ref self, std::span<const std::byte> bytes,
                                   std::optional<std::uint32_t> immediate) {
  message_channel& channel = *self.get();
  if (!channel.opened_.is_set() || channel.failed_) co_await channel.opened();
  if (bytes.size() <= channel.peer().buffer_bytes) {
    co_await send_op{channel, bytes, immediate};
    co_return;
  }
  channel.check_length(bytes.size());
  // Whoever waits may go before the peer has read it: not so a copy.
  local_mr copy = channel.memory_->allocate_uninitialized(bytes.size());
  std::memcpy(copy.bytes().data(), bytes.data(), bytes.size());
  co_await send_large(std::move(self), std::move(copy), immediate);
}

task<> message_channel::send_memory(channel_ref self, const_local_mr_slice bytes,
                                    std::optional<std::uint32_t> immediate) {
  message_channel& channel = *self.get();
  local_mr kept;
  if (bytes.is_held()) kept = local_mr::keep(bytes);
  if (!channel.opened_.is_set() || channel.failed_) co_await channel.opened();
  if (bytes.size_bytes() <= channel.peer().buffer_bytes) {
    co_await send_op{channel, bytes.bytes(), immediate};
    co_return;
  }
  channel.check_length(bytes.size_bytes());
  if (!bytes.is_held()) kept = local_mr::keep(bytes);  // Which says what is wrong with it.
  co_await send_large(std::move(self), std::move(kept), immediate);
}

}  // namespace cordma::detail
