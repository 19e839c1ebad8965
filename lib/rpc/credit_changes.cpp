#include "message_channel.hpp"

namespace cordma::detail {

using message_protocol::credits_max;
using message_protocol::credits_min;
using message_protocol::credits_reserved;
using message_protocol::kind;
using message_protocol::throw_bad_frame;

namespace {

constexpr std::uint32_t never = ~std::uint32_t{0};

}  // namespace

message_channel::credit_change::credit_change(message_channel& c, message_protocol::kind k) noexcept
    : channel{c} {
  frame.kind = k;
  outgoing::on_posted = &on_posted;
}

/// What it says holds from then on.
void message_channel::credit_change::on_posted(outgoing& self, const failure* why) noexcept {
  if (why != nullptr) return;
  message_channel& c = static_cast<credit_change&>(self).channel;
  const std::uint32_t credit = self.frame.messages;
  if (self.frame.kind == kind::shrunk) {
    c.peer_credit_ = credit;
    return;
  }
  if (self.frame.kind == kind::shrink) c.asked_ = credit;
  c.keep_peer_to(credit);
}

// ---- of ours, to the peer

/// Messages keep to it at once; the rest, and so the peer's buffers, when that is confirmed.
void message_channel::on_shrink(const frame& f) {
  if (is_shrinking()) throw_bad_frame("shrinks what is to shrink already");
  if (f.messages < credits_min || f.messages >= peer_credit_)
    throw_bad_frame("shrinks to what is too little, or no less");
  message_credit_ = shrunk_.frame.messages = f.messages;
}

/// As if the smaller number had been all along: it takes none of the messages' places.
bool message_channel::may_confirm() const noexcept {
  return not_taken() + credits_reserved <= message_credit_;
}

void message_channel::on_grant(const frame& f) {
  if (!opened_.is_set()) throw_bad_frame("grants more before it has told its terms");
  if (is_shrinking()) throw_bad_frame("grants more of what is to shrink");
  if (f.messages <= peer_credit_ || f.messages > credits_max)
    throw_bad_frame("grants what is no more, or too much");
  peer_credit_ = message_credit_ = f.messages;
}

// ---- of the peer, to us

/// The peer uses half of what its messages may use: then it is given more, if there is some.
void message_channel::keep_peer_to(std::uint32_t credit) noexcept {
  kept_to_ = credit;
  const bool may_grow = asked_ == 0 && qp_->share() != nullptr && credit < options_.depth;
  grow_at_ = may_grow ? (credit - credits_reserved) / 2 : never;
}

void message_channel::grow() noexcept {
  const bool is_changing = grant_.is_linked() || shrink_.is_linked();
  if (failed_ || is_changing || !buffers_.try_grow(options_.depth)) return;
  grant_.frame.messages = buffers_.credit();
  send(grant_);
}

void message_channel::on_shrink_wanted() noexcept {
  const std::uint32_t least = buffers_.credit_least();
  if (failed_ || asked_ != 0 || shrink_.is_linked() || buffers_.credit() <= least) return;
  shrink_.frame.messages = least;
  send(shrink_);
}

void message_channel::on_shrunk(const frame& f) {
  if (asked_ == 0 || f.messages != asked_) throw_bad_frame("shrinks to what it was not asked");
  if (!buffers_.try_shrink_to(f.messages)) throw_bad_frame("says that it shrinks, and does not");
  asked_ = 0;
  keep_peer_to(f.messages);
}

}  // namespace cordma::detail
