#include "rendezvous.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <new>
#include <utility>

namespace cordma::detail {

using message_protocol::kind;
using message_protocol::throw_bad_frame;

namespace {

[[noreturn]] void fail_send(errc why, const char* what) {
  throw error{{.code = why, .call = "send", .detail = what}};
}

void on_announced(message_channel::outgoing& self, const failure* why) noexcept {
  auto& s = static_cast<large_send&>(self);
  s.is_announced = why == nullptr;
  if (s.is_announced) {
    if (s.tell_announced != nullptr) *s.tell_announced = true;
    return;
  }
  s.refused = *why;
  s.end(std::uint32_t(errc::refused));
}

void ignore(message_channel::outgoing&, const failure*) noexcept {}

}  // namespace

large_send::large_send(message_channel& c, std::uint64_t number, std::size_t length,
                       std::optional<std::uint32_t> imm) noexcept
    : channel{&c}, cleared{c.home_}, ended{c.home_} {
  frame = {.kind = kind::announce, .tag = number, .length = length};
  immediate = imm;
  on_posted = &on_announced;
}

void large_send::end(std::uint32_t with_status) noexcept {
  status = with_status;
  list_hook<large_send>::unlink();
  list_hook<outgoing>::unlink();
  if (is_abandoned) {
    --channel->withdrawn_;
    delete this;
    return;
  }
  ended.set();
  cleared.set();
}

large_receive::large_receive(message_channel& c, arrived_message& a,
                             const message_protocol::frame& f) noexcept
    : waiter{&message_channel::on_read},
      timer{&message_channel::on_late},
      channel{&c},
      slot{a},
      length{f.length} {
  purpose = f.tag;
  on_lent = &message_channel::on_lent;
  on_posted = &ignore;
}

// ---- sending
// -------------------------------------------------------------------------------------

/// A task's part in a large message.
class message_channel::large_handle {
 public:
  large_handle(message_channel& c, std::size_t length, std::optional<std::uint32_t> imm,
               const large_options& how)
      : send_{new large_send{c, ++c.last_tag_, length, imm}} {
    send_->is_fenced = how.is_fenced;
    send_->lent = how.lent;
    send_->tell_announced = how.is_announced;
    c.sends_.push_back(*send_);
    c.send(*send_);
  }
  large_handle(const large_handle&) = delete;
  large_handle& operator=(const large_handle&) = delete;
  ~large_handle() {
    if (!send_->is_announced || send_->ended.is_set()) {
      delete send_;
      return;
    }
    message_channel& c = *send_->channel;
    send_->is_abandoned = true;
    ++c.withdrawn_;
    send_->frame = {.kind = kind::withdraw, .tag = send_->tag()};
    send_->immediate.reset();
    send_->on_posted = &ignore;
    c.send(*send_);
    // Of what is not answered, each has its place among what is not taken.
    if (c.withdrawn_ > c.peer_credit_) [[unlikely]]
      c.break_connection(message_protocol::bad_frame("takes a message and does not answer it"));
  }
  large_send* operator->() const noexcept { return send_; }

 private:
  large_send* send_;
};

task<> message_channel::send_large(channel_ref self, local_mr memory,
                                   std::optional<std::uint32_t> immediate, large_options how) {
  message_channel& channel = *self.get();
  const std::chrono::milliseconds limit = channel.options_.large_lease;
  large_handle message{channel, memory.size_bytes(), immediate, how};
  co_await message->cleared.wait();
  if (message->refused) throw error{*message->refused};
  if (!message->ended.is_set()) {
    const loan_options terms{.access = verbs::access::remote_read, .lease = limit};
    loan lent = co_await channel.agent_->lend_for(message->tag(), std::move(memory), terms);
    const loan_end end = co_await lent.ended();
    if (end.reason == loan_end_reason::expired && !message->ended.is_set())
      fail_send(errc::timed_out, "the peer did not read it within stream_options::large_lease");
    if (!message->ended.is_set()) {
      const auto told =
          co_await as_result(with_timeout(message->ended.wait(), limit, &channel.home_));
      if (told.is_cancelled()) throw cancelled{};
      if (told.has_failure()) fail_send(errc::timed_out, "the peer did not say that it has it");
    }
  }
  if (channel.failed_) throw error{*channel.failed_};
  if (message->status != 0) fail_send(errc::refused, "the peer did not take the message");
  ++channel.counters_.large_sent;
}

large_send* message_channel::find_send(std::uint64_t tag) {
  large_send* const found =
      sends_.find([tag](const large_send& s) { return s.is_announced && s.tag() == tag; });
  if (found == nullptr) throw_bad_frame("answers a message that was not announced");
  return found;
}

void message_channel::on_clear(const frame& f) {
  large_send* const s = find_send(f.tag);
  if (s->cleared.is_set()) throw_bad_frame("clears a message twice");
  s->cleared.set();
}

void message_channel::on_taken(const frame& f) { find_send(f.tag)->end(f.status); }

// ---- receiving
// -----------------------------------------------------------------------------------

void message_channel::on_announce(arrived_message& a, const frame& f) {
  if (f.length <= options_.buffer_bytes || f.length > options_.message_bytes_max)
    throw_bad_frame("announces a message that is too short or too long");
  const auto has_tag = [&](const large_receive& l) { return l.tag() == f.tag; };
  if (announced_.find(has_tag) != nullptr || fetching_.find(has_tag) != nullptr)
    throw_bad_frame("announces a message twice");
  a.awaited = new large_receive{*this, a, f};
  announced_.push_back(*a.awaited);
  behind_.push_back(a);
  fetch_next();
}

/// Asks the peer to lend the next large messages, as far as there may be memory for them.
void message_channel::fetch_next() noexcept {
  if (std::exchange(is_fetching_, true)) return;  // Giving up one of these comes back here.
  while (!failed_ && fetched_ < options_.large_ahead && !announced_.empty()) {
    large_receive& l = announced_.pop_front();
    fetching_.push_back(l);
    l.is_cleared = true;
    ++fetched_;
    try {
      l.message.reset(new large_message{memory_->allocate_uninitialized(l.length)});
    } catch (const std::exception&) {
      give_up(l, errc::refused);
      continue;
    }
    agent_->expect(l);
    home_.arm(l, home_.after(options_.large_lease));
    l.frame = {.kind = kind::clear, .tag = l.tag()};
    send(l);
  }
  is_fetching_ = false;
}

/// The peer has not lent it: others wait behind it.
void message_channel::on_late(timer& self) noexcept {
  auto& l = static_cast<large_receive&>(self);
  l.channel->give_up(l, errc::timed_out);
}

/// In the middle of a reap.
void message_channel::on_lent(expected_loan& self, remote_mr lent) noexcept {
  auto& l = static_cast<large_receive&>(self);
  if (lent.size_bytes() != l.length || !verbs::allows(lent.access(), verbs::access::remote_read)) {
    return l.channel->break_connection(message_protocol::bad_frame("lends something else"));
  }
  l.disarm();
  l.lent = std::move(lent);
  l.channel->read(l);
}

/// In pieces that the device takes.
void message_channel::read(large_receive& l) noexcept {
  const std::size_t size = std::min(l.length - l.done, read_bytes_max_);
  l.reading.emplace(
      qp_->post(cordma::read(l.message->memory.slice(l.done, size), l.lent.slice(l.done, size))));
  l.reading->tell_at_once();
  if (l.reading->start(l, {})) on_read(l);
}

std::coroutine_handle<> message_channel::on_read(waiter& self) noexcept {
  auto& l = static_cast<large_receive&>(self);
  message_channel& channel = *l.channel;
  const result<std::size_t> bytes = l.reading->take_result();
  l.reading.reset();
  if (!bytes.has_value()) {
    channel.give_up(l, errc::lease_ended);  // Or the connection is about to break.
  } else if (l.done += *bytes; l.done < l.length) {
    channel.read(l);
  } else {
    l.slot.bytes = l.message->bytes;
    l.slot.large = std::move(l.message);
    ++channel.counters_.large_received;
    channel.answer(l, 0);
  }
  return std::noop_coroutine();
}

void message_channel::on_withdraw(const frame& f) noexcept {
  const auto has_tag = [&](const large_receive& l) { return l.tag() == f.tag; };
  large_receive* l = announced_.find(has_tag);
  if (l == nullptr) l = fetching_.find(has_tag);
  // What is being read, or was, is answered by how that ends.
  if (l != nullptr && !l->is_over && !l->lent) give_up(*l, errc::refused);
}

/// Nobody gets it.
void message_channel::give_up(large_receive& l, errc why) noexcept {
  const channel_ref stay{*this};
  if (l.is_cleared) --fetched_;
  answer(l, std::uint32_t(why));
  fetch_next();
}

/// It is over; its place is free, or its message there, once the peer is told so. A peer that lets
/// us tell little gets no more places than it has.
void message_channel::answer(large_receive& l, std::uint32_t status) noexcept {
  l.is_over = true;
  l.lent = {};
  l.message.reset();
  l.disarm();
  l.list_hook<expected_loan>::unlink();
  l.list_hook<outgoing>::unlink();
  l.list_hook<large_receive>::unlink();
  fetching_.push_back(l);
  l.frame = {.kind = kind::taken, .tag = l.tag(), .status = status};
  l.on_posted = &on_answered;
  send(l);
}

void message_channel::on_answered(outgoing& self, const failure* /*why*/) noexcept {
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
  channel.tell_whole();
}

void message_channel::end_large() noexcept {
  while (!sends_.empty()) sends_.front().end(std::uint32_t(errc::disconnected));
  fetching_.splice_back(announced_);
  while (!fetching_.empty()) {
    large_receive& l = fetching_.front();
    has_gap_ |= order_ == order::as_sent;
    l.slot.list_hook<arrived_message>::unlink();
    l.slot.awaited = nullptr;
    buffers_.let_go(l.slot);
    delete &l;
  }
  while (has_gap_ && !behind_.empty()) buffers_.let_go(behind_.pop_front());
}

}  // namespace cordma::detail
