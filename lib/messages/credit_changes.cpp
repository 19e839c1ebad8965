#include "message_channel.hpp"

#include <algorithm>
#include <utility>

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
  switch (self.frame.kind) {
    case kind::shrunk:
      c.peer_credit_ = credit;
      c.least_ = 0;
      break;
    case kind::shrink:
      c.asked_ = credit;
      c.keep_peer_to(c.kept_to_);
      break;
    default: c.keep_peer_to(credit);
  }
}

// ---- of ours, to the peer

void message_channel::on_shrink(const frame& f) {
  if (is_to_shrink()) throw_bad_frame("shrinks what is to shrink already");
  if (f.messages < credits_min || f.messages >= peer_credit_)
    throw_bad_frame("shrinks to what is too little, or no less");
  least_ = f.messages;
}

/// What is under way keeps its places, for as long as it likes: who asks is answered at once, and
/// whoever sends here goes on.
message_channel::outgoing& message_channel::shrunk() noexcept {
  shrunk_.frame.messages = std::min(peer_credit_, under_way() + least_);
  return shrunk_;
}

void message_channel::on_grant(const frame& f) {
  if (!opened_.is_set()) throw_bad_frame("grants more before it has told its terms");
  if (is_to_shrink()) throw_bad_frame("grants more of what is to shrink");
  if (f.messages <= peer_credit_ || f.messages > credits_max)
    throw_bad_frame("grants what is no more, or too much");
  peer_credit_ = f.messages;
}

// ---- of the peer, to us

/// The peer uses half of what its messages may use, beyond what it keeps for long: then it is given
/// more, if there is some.
void message_channel::keep_peer_to(std::uint32_t credit, std::uint32_t kept) noexcept {
  kept_to_ = credit;
  const bool may_grow = asked_ == 0 && qp_->share() != nullptr && credit < options_.depth;
  grow_at_ = may_grow ? kept + (credit - kept - credits_reserved) / 2 : never;
}

void message_channel::grow() noexcept {
  const bool is_changing = grant_.is_linked() || shrink_.is_linked();
  if (failed_ || is_changing || !buffers_.try_grow(options_.depth)) return;
  grant_.frame.messages = buffers_.credit();
  send(grant_);
}

void message_channel::on_growth_possible() noexcept {
  if (received_ - told_ < grow_at_) return;
  const channel_ref stay{*this};
  grow();
}

void message_channel::on_shrink_wanted() noexcept {
  const std::uint32_t least = buffers_.credit_least();
  if (failed_ || asked_ != 0 || shrink_.is_linked() || buffers_.credit() <= least) return;
  shrink_.frame.messages = least;
  send(shrink_);
}

void message_channel::on_shrunk(const frame& f) {
  if (asked_ == 0 || f.messages < asked_ || f.messages > buffers_.credit())
    throw_bad_frame("shrinks to what it was not asked");
  if (!buffers_.try_shrink_to(f.messages)) throw_bad_frame("says that it shrinks, and does not");
  keep_peer_to(f.messages, f.messages - std::exchange(asked_, 0));
}

}  // namespace cordma::detail
