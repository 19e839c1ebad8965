#include "base/failures.hpp"
#include "collective.hpp"
#include "group_context.hpp"

#include <cinttypes>

// How an operation fails, and ends when nobody waits for it. collective.cpp has its messages.
namespace cordma::detail {

using group_protocol::kind;

void collective::fail(const failure& why, bool stopped) noexcept {
  if (has_failed_) return;
  has_failed_ = true;
  was_stopped_ = stopped;
  why_ = why;
  ++messages_;  // Keeps the operation while its messages end.
  while (!early_.empty()) {
    early_frame& e = early_.pop_front();
    if (e.frame.kind == kind::offer) group_.release(*group_.rank_of(e.from), e.frame);
    group_.drop_early(e);
  }
  intrusive_list<inbound> in;
  in.splice_back(inbounds_);
  while (!in.empty()) {
    inbound& one = in.pop_front();
    inbounds_.push_back(one);
    end_failed(one);
  }
  intrusive_list<outbound> out;
  out.splice_back(outbounds_);
  while (!out.empty()) {
    outbound& one = out.pop_front();
    outbounds_.push_back(one);
    end_failed(one);
  }
  --messages_;
  settle();
}

/// Ends a message of a failed operation, or takes its memory back first.
void collective::end_failed(inbound& in) noexcept {
  if (!in) return end(in);
  if (!in.is_answered) in.revoke();
}

/// Ends a message of a failed operation. One for which the peer has offered memory ends later: the
/// peer is told so.
void collective::end_failed(outbound& o) noexcept {
  if (o.offered.length == 0) end(o);
}

void collective::withdraw(transfer& message) noexcept {
  // A dropped message by tag goes on until nobody else reaches its memory.
  if (is_by_tag()) keep();
  if (message.has_ended()) return;  // The runtime is ending.
  if (inbound* const in =
          inbounds_.find([&](const inbound& i) { return i.transfer == &message; })) {
    in->transfer = nullptr;
    if (is_by_tag() && *in && !has_failed_) return;
    return end_failed(*in);
  }
  outbound* const out = outbounds_.find([&](const outbound& o) { return o.transfer == &message; });
  CORDMA_ASSERT(out != nullptr, "withdraws a transfer that the operation does not have");
  out->transfer = nullptr;
  end_failed(*out);
}

void collective::let_go(outgoing& message) noexcept {
  outbound* const out = outbounds_.find([&](const outbound& o) { return o.transfer == &message; });
  if (out == nullptr || out->offered.length != 0) return;
  out->transfer = nullptr;
  end(*out);
  message.end(true);
}

bool collective::waits_for(std::uint32_t rank) noexcept {
  const auto waits = [&](const auto& m) { return m.peer == rank && m.needs_peer(); };
  return inbounds_.find(waits) != nullptr || outbounds_.find(waits) != nullptr;
}

void collective::settle() noexcept {
  if (messages_ != 0) return;
  if (settling_ != nullptr) return std::exchange(settling_, nullptr)->suspension::end();
  // Possibly called by what goes with the group: the end comes later.
  if (kept_ && !is_seen_out_ && !list_hook<waiter>::is_linked())
    group_.whole().executor().schedule(*this);
}

std::coroutine_handle<> collective::on_settled(waiter& self) noexcept {
  auto& c = static_cast<collective&>(self);
  const counted_ref<group_context> stay = std::move(c.kept_);
  c.is_seen_out_ = false;
  if (!c.is_by_tag()) delete &c;
  return std::noop_coroutine();
}

void collective::abandon(const failure& why) noexcept {
  ++messages_;  // Settled below at the earliest.
  keep();
  fail(why);
  group_.fail(why, rank());
  --messages_;
  settle();
}

/// Keeps the group until the operation, which nobody waits for, is settled.
void collective::keep() noexcept {
  if (kept_) return;
  kept_ = counted_ref{group_};
  try {
    group_.whole().executor().closer().spawn(see_out(*this));
    is_seen_out_ = true;
  } catch (const std::bad_alloc&) {
    // The operation ends in any case, but not with the runtime.
  }
}

/// Waits until an operation is settled. A runtime that ends before does not wait for the peers.
task<> collective::see_out(collective& c) {
  struct hurry : stop_callback {
    explicit hurry(world& w) noexcept : stop_callback{&on_stop}, whole{w} {}
    static void on_stop(stop_callback& self) noexcept {
      static_cast<hurry&>(self).whole.give_up({.code = errc::closed, .call = "group"});
    }
    world& whole;
  } on_stop{c.group_.whole()};
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) {
    hurry::on_stop(on_stop);
  } else {
    env.stop.register_callback(on_stop);
  }
  co_await c.settled();
  on_stop.unlink();
  static_cast<void>(on_settled(c));
}

collective::settling collective::settled() noexcept { return settling{*this}; }

void collective::disagree(std::uint32_t from, const group_protocol::frame& f,
                          std::size_t length) noexcept {
  group_.fail(
      {.code = errc::ranks_disagree,
       .call = group_.name_of(*this),
       .detail = detail_text("rank %u takes message %u to be of %" PRIu64 " bytes, rank %u of %zu",
                             unsigned{from}, unsigned{f.step}, f.length, rank(), length)},
      from);
}

}  // namespace cordma::detail
