#include "collective.hpp"

#include "base/caught.hpp"
#include "base/failures.hpp"
#include "group_context.hpp"

#include <cordma/runtime/runtime.hpp>

#include <algorithm>
#include <cstring>

namespace cordma::detail {

using group_protocol::kind;

/// Memory of an operation.
struct collective::scratch_block : list_hook<scratch_block>, frame_cache::recycled {
  explicit scratch_block(local_mr m) noexcept : memory{std::move(m)} {}
  local_mr memory;
};

inbound::inbound(collective& of, incoming& m) noexcept
    : inline_grant{&collective::on_loan_ended},
      op{of},
      transfer{&m},
      peer{m.peer()},
      step{m.step()},
      memory{m.memory} {}

namespace {

/// Returns true while the connection of a message's peer works.
template <class Message>
bool peer_works(const Message& m) noexcept {
  const counted_ref<rank_link>& link = m.op.peer_of(m.peer).link;
  return link && !link->failed();
}

}  // namespace

void inbound::on_link() noexcept { op.offer(*this); }

outbound::outbound(collective& of, outgoing& m) noexcept
    : op{of}, transfer{&m}, peer{m.peer()}, step{m.step()}, memory{m.memory} {}

collective::collective(group_context& g, std::uint64_t number,
                       const group_protocol::signature& call, const reducer* reduction) noexcept
    : exchange{g.rank(), g.size()},
      waiter{&on_settled},
      group_{g},
      number_{number},
      call_{call},
      reduction_{reduction} {}

collective::~collective() {
  CORDMA_ASSERT(messages_ == 0, "an operation is destroyed that has messages");
  while (!early_.empty()) group_.drop_early(early_.pop_front());
  while (!scratch_.empty()) delete &scratch_.pop_front();
}

rank_peer& collective::peer_of(std::uint32_t rank) const noexcept {
  return group_.whole().peer(group_.member(rank));
}

group_protocol::frame collective::frame_of(kind k, std::uint32_t step,
                                           std::size_t length) const noexcept {
  return {.kind = k,
          .call = call_,
          .group = group_.id(),
          .operation = number_,
          .step = step,
          .length = length};
}

const host_map* collective::hosts() const noexcept { return &group_.hosts(); }

result<void> collective::why() const noexcept {
  if (was_stopped_) return cancelled_result;
  if (why_) return *why_;
  return {};
}

local_mr_slice collective::scratch(std::size_t size_bytes) {
  if (size_bytes == 0) return {};
  auto* const block =
      new scratch_block{group_.whole().rt().memory().allocate_uninitialized(size_bytes)};
  scratch_.push_back(*block);
  return block->memory.slice();
}

void collective::copy(const local_mr_slice& into, const const_local_mr_slice& from) {
  CORDMA_ASSERT(into.size_bytes() == from.size_bytes(), "copies bytes of another length");
  if (into.bytes().data() != from.bytes().data() && !from.empty())
    std::memcpy(into.bytes().data(), from.bytes().data(), from.size_bytes());
}

void collective::combine(const local_mr_slice& into, const const_local_mr_slice& left,
                         const const_local_mr_slice& right) {
  reduction_->combine(into.bytes().data(), left.bytes().data(), right.bytes().data(),
                      into.size_bytes() / reduction_->element_bytes, reduction_->user);
}

// ---- receiving

void collective::post(incoming& message) noexcept {
  if (has_failed_) return message.end(true);
  inbound* in = nullptr;
  try {
    in = new inbound{*this, message};
  } catch (const std::bad_alloc&) {
    group_.fail(errno_failure(ENOMEM, group_.name_of(*this)), group_.rank());
    return message.end(true);
  }
  inbounds_.push_back(*in);
  ++messages_;
  rank_peer& peer = peer_of(in->peer);
  group_.whole().begin_wait(peer);
  // A rank that has left sent its messages before.
  if (deliver_early(*in)) return;
  if (group_.is_gone(in->peer)) return group_.fail_for_gone(in->peer);
  if (in->memory.size_bytes() > group_.whole().eager_max() || is_by_tag()) {
    if (peer.link) return offer(*in);
    peer.link_waits.push_back(*in);
    group_.whole().want(peer);
  }
}

/// Returns true if the message had come before it was posted.
bool collective::deliver_early(inbound& in) {
  early_frame* const came = early_.find([&](const early_frame& e) {
    return e.frame.kind == kind::eager && group_.rank_of(e.from) == in.peer &&
           e.frame.step == in.step;
  });
  if (came == nullptr) return false;
  came->unlink();
  deliver(in, came->frame, came->bytes());
  group_.drop_early(*came);
  return true;
}

void collective::deliver(inbound& in, const group_protocol::frame& f,
                         std::span<const std::byte> bytes) {
  if (bytes.size() != in.memory.size_bytes()) return disagree(in.peer, f, in.memory.size_bytes());
  if (!bytes.empty()) std::memcpy(in.memory.bytes().data(), bytes.data(), bytes.size());
  group_.consumed(in.peer, number_);
  end(in);
}

void collective::on_eager(std::uint32_t from, const group_protocol::frame& f,
                          std::span<const std::byte> bytes) {
  if (has_failed_) return;
  inbound* const in = inbounds_.find([&](const inbound& one) {
    return one.peer == from && one.step == f.step && !one.is_offered;
  });
  if (in != nullptr) return deliver(*in, f, bytes);
  group_.keep_early(early_, from, f, bytes);
}

void collective::offer(inbound& in) noexcept {
  rank_peer& peer = peer_of(in.peer);
  try {
    peer.link->lender().lends.lend_inline(in, local_mr::keep(in.memory),
                                          verbs::access::remote_write);
  } catch (...) {
    return group_.fail(caught(group_.name_of(*this)), group_.rank());
  }
  group_protocol::frame f = frame_of(kind::offer, in.step, in.memory.size_bytes());
  f.loan = in.terms();
  in.frame.kind = message_protocol::kind::data;
  group_protocol::encode(f, in.open_head(group_protocol::size_of(kind::offer)));
  in.lent = {};
  in.lent.all[in.lent.count++] = &in;
  in.on_posted = &on_offer_sent;
  in.is_offered = true;
  peer.link->send(in);
}

void collective::on_offer_sent(outgoing_frame& self, const std::optional<failure>& why) noexcept {
  auto& in = static_cast<inbound&>(self);
  // A link that has failed is about to tell so, and its loans end.
  if (!why || !peer_works(in)) return;
  in.is_offered = false;
  in.drop(false);
  in.op.group_.fail(*why, in.op.rank());
}

void collective::on_answer(std::uint32_t from, const group_protocol::frame& f,
                           std::optional<std::uint32_t> invalidated) {
  inbound* const in = inbounds_.find([&](const inbound& one) {
    return one.peer == from && one.step == f.step && one.is_offered && !one.is_answered;
  });
  if (in == nullptr) {
    // A failed operation waits no longer than its loan's grace.
    if (has_failed_) return;
    message_protocol::throw_bad_frame("answers an offer that was not made", "group");
  }
  in->is_answered = true;
  in->is_released = f.kind == kind::released;
  if (*in) in->give_back(invalidated);
}

/// Ends a message once only this rank can reach the memory.
void collective::on_loan_ended(inline_grant& self) noexcept {
  auto& in = static_cast<inbound&>(self);
  const bool has_arrived = in.is_answered && !in.is_released;
  // Otherwise the peer, or its operation, is about to be known as failed: `fail` ends the message.
  if (has_arrived || in.op.has_failed_ || (in.is_released && in.op.is_by_tag())) in.op.end(in);
}

void collective::end(inbound& in) noexcept {
  const bool has_arrived = !has_failed_ && !in.is_released && (in.is_answered || !in.is_offered);
  incoming* const transfer = in.transfer;
  group_.whole().end_wait(peer_of(in.peer));
  delete &in;
  --messages_;
  if (transfer != nullptr) transfer->end(!has_arrived);
  settle();
}

// ---- sending

void collective::post(outgoing& message) noexcept {
  if (has_failed_) return message.end(true);
  outbound* out = nullptr;
  try {
    out = new outbound{*this, message};
  } catch (const std::bad_alloc&) {
    group_.fail(errno_failure(ENOMEM, group_.name_of(*this)), group_.rank());
    return message.end(true);
  }
  outbounds_.push_back(*out);
  ++messages_;
  group_.whole().begin_wait(peer_of(out->peer));
  if (group_.is_gone(out->peer)) return group_.fail_for_gone(out->peer);
  if (out->memory.size_bytes() <= group_.whole().eager_max() && !is_by_tag())
    return group_.send_or_stall(*out);
  early_frame* const came = early_.find([&](const early_frame& e) {
    return e.frame.kind == kind::offer && group_.rank_of(e.from) == out->peer &&
           e.frame.step == out->step;
  });
  if (came == nullptr) return;
  const group_protocol::frame f = came->frame;
  group_.drop_early(*came);
  if (f.length != out->memory.size_bytes()) {
    group_.release(out->peer, f);
    return disagree(out->peer, f, out->memory.size_bytes());
  }
  write(*out, f.loan);
}

void collective::send_eager(outbound& o) noexcept {
  o.frame.kind = message_protocol::kind::data;
  group_protocol::frame f = frame_of(kind::eager, o.step, o.memory.size_bytes());
  f.credits = group_.take_owed(o.peer, number_);
  group_protocol::encode(f, o.open_head(group_protocol::header_bytes));
  o.bytes = o.memory.bytes();
  o.on_posted = &on_eager_sent;
  group_.whole().send(group_.member(o.peer), o);
}

void collective::on_eager_sent(outgoing_frame& self, const std::optional<failure>& why) noexcept {
  auto& o = static_cast<outbound&>(self);
  collective& c = o.op;
  if (why && !c.has_failed_) return c.group_.fail_for(*why, o.peer);  // Ends this message, too.
  c.end(o);
}

void collective::on_offer(std::uint32_t from, const group_protocol::frame& f) {
  if (has_failed_) return group_.release(from, f);
  outbound* const out = outbounds_.find([&](const outbound& one) {
    return one.peer == from && one.step == f.step && one.offered.length == 0;
  });
  if (out == nullptr) {
    // A sender by tag announces before it gets an offer: this one has let go.
    if (is_by_tag()) return group_.release(from, f);
    return group_.keep_early(early_, from, f, {});
  }
  if (f.length != out->memory.size_bytes()) {
    group_.release(from, f);
    return disagree(from, f, out->memory.size_bytes());
  }
  write(*out, f.loan);
}

void collective::write(outbound& o, const loan_terms& where) noexcept {
  o.link = peer_of(o.peer).link;
  if (!o.link) return;  // The memory went with the connection: the rank is lost, and soon gone.
  o.offered = where;
  write_next(o);
}

void collective::write_next(outbound& o) noexcept {
  const std::size_t length =
      std::min(o.memory.size_bytes() - o.posted_bytes, o.link->write_bytes_max);
  const remote_mr_slice there{o.offered.address + o.posted_bytes, length, o.offered.rkey};
  const const_local_mr_slice here = o.memory.slice(o.posted_bytes, length);
  o.posted_bytes += length;
  o.is_writing = true;
  o.writing.emplace(o.link->data->sends(), cordma::write(here, there), o, &on_written);
  o.is_posting = true;
  o.writing->post();
  o.is_posting = false;
  if (!o.is_writing) return end_write(o, true);
  // The frame goes behind the last WRITE, unless that waits for room in the send queue.
  if (o.posted_bytes == o.memory.size_bytes() && !o.writing->is_queued()) tell_written(o);
}

void collective::on_written(outbound& o) noexcept {
  o.is_writing = false;
  if (!o.is_posting) o.op.end_write(o, false);
}

/// \param is_refused  a WRITE that failed was refused by this side, mostly: it was never posted.
void collective::end_write(outbound& o, bool is_refused) noexcept {
  const result<std::size_t> outcome = o.writing->outcome();
  if (outcome.has_value()) {
    if (o.posted_bytes != o.memory.size_bytes()) return write_next(o);
    if (o.is_told) return end(o);
    if (o.on_posted == nullptr) tell_written(o);
    return;
  }
  const failure why = outcome.failure();
  // The link may be told later that its connection has failed.
  if (!is_refused || !peer_works(o) || why.code == errc::disconnected) {
    if (!has_failed_) group_.fail_for(why, o.peer);
    return end(o);
  }
  group_.release(o.peer, frame_of(kind::offer, o.step, o.memory.size_bytes()));
  if (!has_failed_) group_.fail(why, rank());
  end(o);
}

void collective::tell_written(outbound& o) noexcept {
  o.frame.kind = message_protocol::kind::data;
  group_protocol::encode(frame_of(kind::written, o.step, o.memory.size_bytes()),
                         o.open_head(group_protocol::header_bytes));
  if (o.link->lender().can_invalidate(o.offered)) {
    o.immediate = o.offered.rkey;
    o.is_invalidation = true;
  }
  o.on_posted = &on_told;
  o.link->send(o);
}

void collective::on_told(outgoing_frame& self, const std::optional<failure>& why) noexcept {
  auto& o = static_cast<outbound&>(self);
  collective& c = o.op;
  o.is_told = true;
  if (why && !c.has_failed_) c.group_.fail_for(*why, o.peer);
  if (!o.is_writing) c.end(o);
}

void collective::end(outbound& o) noexcept {
  outgoing* const transfer = o.transfer;
  group::statistics& counted = group_.whole().counted;
  if (!has_failed_) {
    ++counted.sent;
    counted.sent_bytes += o.memory.size_bytes();
    counted.written += o.offered.length != 0 ? 1 : 0;
  }
  group_.whole().end_wait(peer_of(o.peer));
  delete &o;
  --messages_;
  if (transfer != nullptr) transfer->end(has_failed_);
  settle();
}

}  // namespace cordma::detail
