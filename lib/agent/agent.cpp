#include <cordma/detail/agent/agent.hpp>

#include "agent_options.hpp"
#include "borrower.hpp"
#include "holder_frames.hpp"
#include "lender.hpp"
#include "owner_frames.hpp"

#include <new>
#include <optional>

namespace cordma {

using agent_protocol::kind;

class agent::parts final : control_channel::listener {
 public:
  parts(const agent_resources& r, const agent_options& options)
      : channel{r.data.driver(), r.lending.domain(), r.memory, *this},
        context{.executor = r.data.driver().executor(),
                .data = r.data,
                .channel = channel,
                .lending = r.lending,
                .memory = r.memory,
                .options = options,
                .port = r.port,
                .gid = r.gid,
                .has_own_domain = r.has_own_domain},
        lends{context},
        owner{context, lends},
        note_arrived{context.executor} {
    r.data.reserve_sends(reserved_slots);
  }

  void fail(const failure& why) noexcept {
    channel.stop();
    lends.fail(why);
    if (borrows) borrows->fail(why);
  }

  control_channel channel;
  agent_context context;
  lender lends;
  owner_frames owner;
  std::optional<borrower> borrows;
  std::optional<holder_frames> holder;
  std::optional<failure> bad_frame;
  control_channel::outgoing our_note;
  std::optional<note> peer_note;
  event note_arrived;

 private:
  void on_frame(const control_channel::frame& f, unsigned slot) noexcept override {
    try {
      switch (f.kind) {
        // Questions are answered in their slot, now or later.
        case kind::request: return owner.on_request(f, slot);
        case kind::renew: return owner.on_renew(f, slot);
        case kind::hand_over: return owner.on_hand_over(f, slot);
        case kind::offer: return holder->on_offer(f, slot);
        case kind::accept: owner.on_accept(f); break;
        case kind::give_back: owner.on_give_back(f); break;
        case kind::granted: holder->on_granted(f); break;
        case kind::refused: holder->on_refused(f); break;
        case kind::renewed: holder->on_renewed(f); break;
        case kind::handed_over: holder->on_handed_over(f); break;
        case kind::revoke: holder->on_revoke(f); break;
        case kind::note: on_note(f); break;
        case kind::credit: break;
      }
      channel.release(slot);
    } catch (const error& e) {
      on_bad_frame(e.failure());
    } catch (const std::bad_alloc&) {
      context.break_connection(errc::limit_exceeded, "agent: no memory");
    }
  }
  void on_note(const control_channel::frame& f) {
    if (peer_note) throw error{{.code = errc::bad_frame, .call = "agent", .detail = "two notes"}};
    peer_note = {f.tag, f.lease, f.length};
    note_arrived.set();
  }
  void on_bad_frame(const failure& why) noexcept override {
    bad_frame = why;
    context.break_connection(errc::bad_frame, "agent");
  }
};

agent::agent(const agent_resources& resources, const agent_options& options) {
  check(options);
  parts_ = std::make_unique<parts>(resources, options);
}
agent::~agent() = default;

queue_pair_base& agent::control() noexcept { return parts_->channel.qp(); }
event::wait_op agent::settled() noexcept { return parts_->channel.settled(); }
void agent::post_receives() { parts_->channel.post_receives(); }
void agent::start(const remote_mr_slice& flush_word) {
  parts_->borrows.emplace(parts_->context, flush_word);
  parts_->holder.emplace(parts_->context, *parts_->borrows);
  parts_->channel.start();
}
void agent::fail(const failure& why) noexcept { parts_->fail(why); }

task<remote_mr> agent::request_remote_mr(std::size_t size_bytes, remote_mr_request request) {
  return parts_->borrows->request(size_bytes, request);
}
task<loan> agent::send_local_mr(local_mr memory, loan_options options) {
  return parts_->lends.lend(std::move(memory), options);
}
void agent::lend_inline(inline_grant& l, local_mr memory, verbs::access access) {
  parts_->lends.lend_inline(l, std::move(memory), access);
}
bool agent::can_invalidate(const loan_terms& terms) const noexcept {
  return terms.isolation == isolation::exact &&
         parts_->context.lending.domain().limits().send_with_invalidate;
}
remote_mr agent::borrow_inline(const loan_terms& terms, verbs::access access, time_point until,
                               std::uint64_t& number) {
  return parts_->borrows->borrow_inline(terms, access, until, number);
}
bool agent::end_along(std::uint64_t number) noexcept { return parts_->borrows->end_along(number); }
void agent::send_note(const note& ours) noexcept {
  parts_->our_note.frame = {
      .kind = kind::note, .tag = ours[0], .lease = ours[1], .length = ours[2]};
  parts_->channel.send(parts_->our_note);
}
event& agent::note_arrived() noexcept { return parts_->note_arrived; }
const std::optional<agent::note>& agent::peer_note() const noexcept { return parts_->peer_note; }
task<> agent::send_remote_mr(remote_mr memory) {
  return parts_->borrows->hand_over(std::move(memory));
}
task<local_mr> agent::receive_local_mr() { return parts_->lends.receive(); }
task<remote_mr> agent::receive_remote_mr() { return parts_->borrows->receive(); }

const agent_options& agent::options() const noexcept { return parts_->context.options; }
const lending_counters& agent::counters() const noexcept { return parts_->context.counters; }
const std::optional<failure>& agent::bad_frame() const noexcept { return parts_->bad_frame; }
const std::optional<failure>& agent::last_refusal() const noexcept {
  return parts_->context.last_refusal;
}
std::vector<lease_info> agent::leases() const {
  std::vector<lease_info> all;
  parts_->lends.list(all);
  if (parts_->borrows) parts_->borrows->list(all);
  return all;
}

}  // namespace cordma
