#include "rendezvous.hpp"
#include "request/queue_pair.hpp"

#include <cordma/detail/messages/pending_fill.hpp>

#include <algorithm>
#include <utility>

namespace cordma::detail {

using message_protocol::kind;
using message_protocol::throw_bad_frame;

namespace {

void on_announced(outgoing_frame& self, const std::optional<failure>& why) noexcept {
  auto& s = static_cast<large_send&>(self);
  s.is_announced = !why;
  if (s.is_announced) return;
  s.why = why;
  s.is_answered = true;
  s.end();
}

/// The peer cannot reach the message any more. Before the peer has answered, its answer will say
/// so.
void on_loan_ended(inline_grant& self) noexcept {
  auto& s = static_cast<large_send&>(self);
  if (s.is_answered) s.end();
}

void ignore(outgoing_frame&, const std::optional<failure>&) noexcept {}

}  // namespace

large_send::large_send(message_channel& c, local_mr memory, const large_options& how)
    : inline_grant{&on_loan_ended}, channel{&c}, on_ended{how.on_ended}, owner{how.owner} {
  c.agent_->lends.lend_inline(*this, std::move(memory), verbs::access::remote_read);
  frame = {.kind = kind::announce, .tag = ++c.large_.last_tag, .loan = terms()};
  immediate = how.immediate;
  is_fenced = how.is_fenced;
  lent = how.lent;
  lent.all[lent.count++] = this;
  on_posted = &on_announced;
}

/// The message is answered, and nothing is lent.
void large_send::end() noexcept {
  list_hook<large_send>::unlink();
  list_hook<outgoing_frame>::unlink();
  if (is_abandoned)
    delete this;
  else
    on_ended(*this);
}

large_receive::large_receive(message_channel& c, arrived_message& a,
                             const message_protocol::frame& f) noexcept
    : channel{&c}, slot{a}, terms{f.loan} {
  frame = {.kind = kind::taken, .tag = f.tag};
  on_posted = &message_channel::on_answered;
}

// ---- sending ------------------------------------------------------------------------------------

large_handle message_channel::make_large(local_mr memory, const large_options& how) {
  if (failed_) throw error{*failed_};
  large_handle message{new large_send{*this, std::move(memory), how}};
  large_.sends.push_back(*message);
  return message;
}

void withdraw_large::operator()(large_send* s) const noexcept {
  if (!s->is_announced || s->is_answered) {
    delete s;
    return;
  }
  message_channel& c = *s->channel;
  s->is_abandoned = true;
  ++c.large_.withdrawn;
  s->frame = {.kind = kind::withdraw, .tag = s->tag()};
  s->immediate.reset();
  s->on_posted = &ignore;
  s->revoke();
  c.send(*s);  // May end it, if the connection has failed.
  // Each message that is not answered occupies a credit.
  if (c.large_.withdrawn > c.credits_.credit()) [[unlikely]]
    c.break_connection(message_protocol::bad_frame("takes a message and does not answer it"));
}

task<> message_channel::send_large(channel_ref self, local_mr memory,
                                   std::optional<std::uint32_t> immediate) {
  message_channel& channel = *self.get();
  event ended{channel.executor_};
  const auto set_ended = [](large_send& s) noexcept { static_cast<event*>(s.owner)->set(); };
  const large_handle message =
      channel.make_large(std::move(memory), {set_ended, &ended, immediate});
  channel.send(*message);
  co_await ended.wait();
  if (message->why) throw error{*message->why};
}

void message_channel::on_taken(const frame& f, std::optional<std::uint32_t> invalidated) {
  large_send* const s = large_.sends.find([&](const large_send& one) {
    return one.is_announced && !one.is_answered && one.tag() == f.tag;
  });
  if (s == nullptr) throw_bad_frame("answers a message that was not announced");
  s->is_answered = true;
  if (f.status != 0)
    s->why = {.code = errc::refused, .call = "send", .detail = "the peer did not take the message"};
  if (f.status == 0)
    ++counters_.large_sent;  // Counted here: the task may have left, as that of an answered call.
  if (s->is_abandoned) --large_.withdrawn;
  if (*s)
    s->give_back(invalidated);
  else
    s->end();
}

// ---- receiving ----------------------------------------------------------------------------------

void message_channel::on_announce(arrived_message& a, const frame& f) {
  if (f.loan.length <= options_.buffer_bytes || f.loan.length > options_.message_bytes_max)
    throw_bad_frame("announces a message that is too short or too long");
  if (find_large(f.tag) != nullptr) throw_bad_frame("announces a message twice");
  a.awaited = new large_receive{*this, a, f};
  large_.announced.push_back(*a.awaited);
  behind_.push_back(a);
  fetch_next();
}

/// Reads the next large messages. At most `large_ahead` are read before they are asked for, and
/// none while a task waits that has its message read elsewhere.
void message_channel::fetch_next() noexcept {
  if (std::exchange(large_.is_fetching, true)) return;  // Called by the end of one of these.
  const channel_ref stay{*this};
  while (!failed_ && !large_.announced.empty()) {
    large_receive& l = large_.announced.front();
    const waiting tasks = waiting_tasks();
    const bool is_next = inbox_.empty() && &behind_.front() == &l.slot;
    const bool is_offered = is_next && tasks.next_fill != nullptr;
    const bool is_asked_for = is_next && tasks.has_any;
    const bool may_wait = tasks.has_fills || large_.fetched >= options_.large_ahead;
    if (may_wait && !is_asked_for) break;
    l.list_hook<large_receive>::unlink();
    large_.fetching.push_back(l);
    if (is_offered) {
      l.fill = tasks.next_fill;
      l.fill->offer(l);
      continue;
    }
    l.is_fetched = true;
    ++large_.fetched;
    try {
      l.message.reset(new large_message{memory_->allocate_uninitialized(l.length())});
      borrow(l);
    } catch (const std::exception&) {
      give_up(l, errc::refused);
      continue;
    }
    l.into = l.message->memory.slice();
    read(l);
  }
  large_.is_fetching = false;
}

/// Borrows the memory of a message, unless a wait that ended early has done so.
void message_channel::borrow(large_receive& l) {
  if (l.borrowing != 0) return;
  l.lent = agent_->borrows.borrow_inline(l.terms, verbs::access::remote_read, time_point::max(),
                                         l.borrowing);
}

/// Reads the next piece, of a size that the device takes.
void message_channel::read(large_receive& l) noexcept {
  const std::size_t size = std::min(l.length() - l.done_bytes, read_bytes_max_);
  l.reading.emplace(
      qp_->sends(),
      cordma::read(l.into.slice(l.done_bytes, size), l.lent.slice(l.done_bytes, size)), l,
      [](large_receive& ended) noexcept { ended.channel->on_read(ended); });
  l.reading->post();
}

void message_channel::on_read(large_receive& l) noexcept {
  const result<std::size_t> bytes = l.reading->outcome();
  l.reading.reset();
  if (!bytes.has_value()) {
    if (l.fill != nullptr) return l.fill->on_failed(bytes.failure());
    give_up(l, errc::lease_ended);  // The connection is about to break.
  } else if (l.done_bytes += *bytes; l.done_bytes < l.length()) {
    if (l.is_withdrawn)
      give_up(l, errc::refused);
    else
      read(l);
  } else if (l.fill != nullptr) {
    l.fill->on_read();
  } else {
    l.slot.bytes = l.message->bytes;
    l.slot.large = std::move(l.message);
    ++counters_.large_received;
    answer(l, 0);
  }
}

void message_channel::on_withdraw(const frame& f) noexcept {
  large_receive* const l = find_large(f.tag);
  if (l == nullptr || std::exchange(l->is_withdrawn, true)) return;
  l->immediate.reset();
  const bool is_read = l->is_fetched || l->reading || l->is_read();
  if (!is_read) give_up(*l, errc::refused);
}

large_receive* message_channel::find_large(std::uint64_t tag) noexcept {
  const auto has_tag = [&](const large_receive& l) { return l.tag() == tag; };
  large_receive* const announced = large_.announced.find(has_tag);
  return announced != nullptr ? announced : large_.fetching.find(has_tag);
}

/// Ends a message that will not be delivered.
void message_channel::give_up(large_receive& l, errc why) noexcept {
  const channel_ref stay{*this};
  if (l.is_fetched) --large_.fetched;
  if (l.fill != nullptr) l.fill->lose();
  answer(l, std::uint32_t(why));
  fetch_next();
}

/// Leaves a message to the next task that asks. A READ in flight goes on, and its slot keeps the
/// memory.
void message_channel::offer_again(large_receive& l) noexcept {
  l.fill = nullptr;
  l.reading.reset();
  l.done_bytes = 0;
  l.list_hook<large_receive>::unlink();
  large_.announced.push_front(l);
  if (l.is_withdrawn) give_up(l, errc::refused);
}

/// Tells the peer that its message is over. The receive buffer of `announce` is free, or its
/// message ready, once the answer is posted. A peer that grants few credits thus gets no more
/// buffers than it has. The answer can invalidate the peer's window, unless the peer may have
/// revoked it already.
void message_channel::answer(large_receive& l, std::uint32_t status) noexcept {
  l.lent = {};
  // A READ that a wait has left behind may be in flight.
  if (l.borrowing != 0 && agent_ != nullptr) l.is_fenced = agent_->borrows.end_along(l.borrowing);
  l.message.reset();
  l.list_hook<large_receive>::unlink();
  large_.fetching.push_back(l);
  l.frame.status = status;
  if (!l.is_withdrawn && agent_ != nullptr && agent_->can_invalidate(l.terms)) {
    l.immediate = l.terms.rkey;
    l.is_invalidation = true;
  }
  send(l);
}

void message_channel::on_answered(outgoing_frame& self,
                                  const std::optional<failure>& /*why*/) noexcept {
  auto& l = static_cast<large_receive&>(self);
  message_channel& channel = *l.channel;
  arrived_message& a = l.slot;
  const channel_ref stay{channel};
  delete &l;
  a.awaited = nullptr;
  if (a.large == nullptr) {
    a.list_hook<arrived_message>::unlink();
    channel.give_back(a);
  }
  channel.announce_whole();
  channel.fetch_next();
}

void message_channel::end_large() noexcept {
  while (!large_.sends.empty()) {
    large_send& s = large_.sends.front();
    s.is_answered = true;
    s.why = failed_;
    s.drop();
    s.end();
  }
  intrusive_list<arrived_message> rest;
  rest.splice_back(behind_);
  while (!rest.empty()) {
    arrived_message& a = rest.pop_front();
    large_receive* const l = std::exchange(a.awaited, nullptr);
    if (l == nullptr && !large_.has_gap) {
      inbox_.push_back(a);
      on_message();
      continue;
    }
    if (l != nullptr) {
      // A message that its sender has given up leaves no gap.
      large_.has_gap |= order_ == order::as_sent && !l->is_withdrawn;
      if (l->fill != nullptr) l->fill->lose();
      delete l;
    }
    buffers_.release(a);
  }
}

}  // namespace cordma::detail
