#include "message_channel.hpp"

namespace cordma::detail {

using message_protocol::credits_max;
using message_protocol::credits_min;
using message_protocol::kind;
using message_protocol::throw_bad_frame;

/// The receiver of a direction owns its credit, and grants more (`grant`). It may also ask the
/// sender to keep to less (`shrink`), which the sender confirms (`shrunk`). One change at a time:
/// `grow` and `on_shrink_wanted` begin none while a frame of theirs waits or the peer has not
/// answered.

message_channel::credit_change::credit_change(message_channel& c, message_protocol::kind k) noexcept
    : channel{c} {
  frame.kind = k;
  outgoing_frame::on_posted = &on_posted;
}

/// The credit in the frame holds from now on.
void message_channel::credit_change::on_posted(outgoing_frame& self,
                                               const std::optional<failure>& why) noexcept {
  if (why) return;
  message_channel& c = static_cast<credit_change&>(self).channel;
  const std::uint32_t credit = self.frame.messages;
  switch (self.frame.kind) {
    case kind::shrunk: c.credits_.shrink_to(credit); break;
    case kind::shrink:
      c.credit_changes_.asked = credit;
      c.limit_peer(c.credits_.peer_credit_limit());
      break;
    default: c.limit_peer(credit);
  }
}

// ---- frames to the peer

void message_channel::on_shrink(const frame& f) {
  if (credits_.has_shrink_request()) throw_bad_frame("shrinks what is to shrink already");
  if (f.messages < credits_min || f.messages >= credits_.credit())
    throw_bad_frame("shrinks to what is too little, or no less");
  credits_.request_shrink(f.messages);
}

/// The frame that answers the peer's request to shrink.
outgoing_frame& message_channel::shrunk() noexcept {
  credit_changes_.shrunk.frame.messages = credits_.shrunk_credit();
  return credit_changes_.shrunk;
}

void message_channel::on_grant(const frame& f) {
  if (state_ == state::opening) throw_bad_frame("grants more before it has told its terms");
  if (credits_.has_shrink_request()) throw_bad_frame("grants more of what is to shrink");
  if (f.messages <= credits_.credit() || f.messages > credits_max)
    throw_bad_frame("grants what is no more, or too much");
  credits_.grow_to(f.messages);
}

// ---- frames from the peer

void message_channel::limit_peer(std::uint32_t credit, std::uint32_t occupied) noexcept {
  const bool can_grow =
      credit_changes_.asked == 0 && qp_->share() != nullptr && credit < options_.depth;
  credits_.limit_peer(credit, occupied, can_grow);
}

/// Gives the peer more credit, if the pool has some.
void message_channel::grow() noexcept {
  const bool is_changing = credit_changes_.grant.is_linked() || credit_changes_.shrink.is_linked();
  if (failed_ || is_changing || !buffers_.try_grow(options_.depth)) return;
  credit_changes_.grant.frame.messages = buffers_.credit();
  send(credit_changes_.grant);
}

void message_channel::on_growth_possible() noexcept {
  if (!credits_.is_growth_due(credits_.used_by_peer())) return;
  const channel_ref stay{*this};
  grow();
}

void message_channel::on_shrink_wanted() noexcept {
  const std::uint32_t least = buffers_.credit_least();
  const bool is_asked = credit_changes_.asked != 0 || credit_changes_.shrink.is_linked();
  if (failed_ || is_asked || buffers_.credit() <= least) return;
  credit_changes_.shrink.frame.messages = least;
  send(credit_changes_.shrink);
}

void message_channel::on_shrunk(const frame& f) {
  const std::uint32_t asked = credit_changes_.asked;
  if (asked == 0 || f.messages < asked || f.messages > buffers_.credit())
    throw_bad_frame("shrinks to what it was not asked");
  if (!buffers_.try_shrink_to(f.messages)) throw_bad_frame("says that it shrinks, and does not");
  credit_changes_.asked = 0;
  limit_peer(f.messages, f.messages - asked);
}

}  // namespace cordma::detail
