#include "agent.hpp"

#include "base/is_same_secret.hpp"
#include "queue/send_queue.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <new>
#include <string_view>

namespace cordma {

using agent_protocol::kind;
using detail::grant;
using detail::holding;
using std::chrono::duration_cast;
using std::chrono::microseconds;

namespace {

[[noreturn]] void fail_frame(const char* what) {
  throw error{{.code = errc::bad_frame, .call = "agent", .detail = what}};
}

agent_protocol::frame refused(std::uint64_t tag, errc why, std::uint64_t limit = 0) noexcept {
  return {.kind = kind::refused, .tag = tag, .length = limit, .status = std::uint32_t(why)};
}

/// A refusal may say a few things only: else a peer could pass off an error as this end's own.
failure failure_of(const agent_protocol::frame& refused) noexcept {
  const errc said{int(refused.status)};
  failure f{.code = errc::refused, .call = "agent", .detail = "the peer could not"};
  switch (said) {
    case errc::access_denied:
      f.detail = refused.length == 0
                     ? "the peer lends nothing: set bytes_max of its lending_policy "
                       "(connection_options::agent.lending), which is 0 by default"
                     : "the peer's lending_policy::access_max leaves nothing of the access";
      break;
    case errc::limit_exceeded: {
      char text[120];
      std::snprintf(text, sizeof text,
                    "the peer's lending_policy: bytes_max, %" PRIu64
                    " at once, or one of its numbers of leases",
                    refused.length);
      f.detail = text;
      break;
    }
    case errc::not_supported: f.detail = "the peer's device cannot lend"; break;
    case errc::lease_ended: f.detail = "the owner has ended it"; break;
    default: return f;
  }
  f.code = said;
  return f;
}

}  // namespace

agent::agent(const agent_resources& r, const agent_options& options)
    : channel{r.data.driver(), r.lending.domain(), r.memory, *this},
      context{{r}, channel, options},
      lends{context},
      borrows{context},
      note_arrived{context.executor} {
  if (r.data.verbs().type() != verbs::queue_pair_type::xrc_target)
    r.data.sends().reserve(reserved_slots);
}

byte_channel& agent::start_bytes() noexcept {
  bytes.emplace(channel);
  channel.start();
  return *bytes;
}

void agent::start(const remote_mr_slice& flush_word,
                  const std::optional<agent_protocol::payload>& expected,
                  std::optional<verbs::access> then) noexcept {
  context.flush_word = flush_word;
  expected_ = expected;
  allows_then_ = then;
  is_running_ = !expected;
  if (!expected) proved.set();
  channel.start();
}

void agent::send_proof(const agent_protocol::payload& ours) noexcept {
  our_proof_.frame = agent_protocol::proof_frame(ours);
  channel.send(our_proof_);
}

void agent::fail(const failure& why) noexcept {
  channel.stop();
  lends.fail(why);
  borrows.fail(why);
  proved.set();
}

bool agent::can_invalidate(const loan_terms& terms) const noexcept {
  return terms.isolation == isolation::exact &&
         context.lending.domain().limits().send_with_invalidate;
}

std::vector<lease_info> agent::leases() {
  std::vector<lease_info> all;
  lends.list(all);
  borrows.list(all);
  return all;
}

void agent::send_note(const note& ours) noexcept {
  our_note_.frame = {.kind = kind::note, .tag = ours[0], .lease = ours[1], .length = ours[2]};
  channel.send(our_note_);
}

// ---- frames
// --------------------------------------------------------------------------------------

void agent::on_frame(const frame& f, unsigned slot) noexcept {
  try {
    // A refusal may still go to the peer as bytes.
    if (bad_frame && f.kind != kind::bytes) return channel.release(slot);
    if (agent_protocol::has_payload(f.kind)) return on_bootstrap(f, slot);
    if (!is_running_) fail_frame("a frame before the peer has proved who it is");
    if (context.data.verbs().type() != verbs::queue_pair_type::rc && f.kind != kind::credit)
      fail_frame("a frame about remote memory, which only RC has");
    switch (f.kind) {
      // Questions are answered in their slot, now or later.
      case kind::request: return on_request(f, slot);
      case kind::renew: return on_renew(f, slot);
      case kind::hand_over: return on_hand_over(f, slot);
      case kind::offer: return on_offer(f, slot);
      case kind::accept: on_accept(f); break;
      case kind::give_back: on_give_back(f); break;
      case kind::granted: on_granted(f); break;
      case kind::refused: borrows.refused(answered(f, kind::refused), failure_of(f)); break;
      case kind::renewed: on_renewed(f); break;
      case kind::handed_over: borrows.handed_over(answered(f, kind::hand_over)); break;
      case kind::revoke: on_revoke(f); break;
      case kind::note: on_note(f); break;
      case kind::credit:
      case kind::bytes:
      case kind::proof: break;
    }
    channel.release(slot);
  } catch (const error& e) {
    on_bad_frame(e.failure());
  } catch (const std::bad_alloc&) {
    context.break_connection(errc::limit_exceeded, "agent: no memory");
  }
}

/// Handles the frames that come before all others, and the goodbye at the end.
void agent::on_bootstrap(const frame& f, unsigned slot) {
  if (f.kind == kind::bytes) {
    if (!bytes) fail_frame("bytes, where the bootstrap has a socket");
    return bytes->on_frame(f, slot);
  }
  if (!expected_) fail_frame("a proof that nobody expects");
  if (!is_same_secret(agent_protocol::payload_of(f), *expected_)) fail_frame("the wrong proof");
  expected_.reset();
  if (allows_then_) context.data.verbs().allow(*allows_then_);
  is_running_ = true;
  channel.release(slot);
  proved.set();
}

void agent::on_channel_failure() noexcept {
  proved.set();
  if (bytes) bytes->on_failure();
}

void agent::on_bad_frame(const failure& why) noexcept {
  if (!bad_frame) {
    bad_frame = why;
    if (bytes) bytes->on_bad_frame(why);
  }
  proved.set();
  context.break_connection(errc::bad_frame, "agent");
}

void agent::on_note(const frame& f) {
  if (peer_note) fail_frame("two notes");
  peer_note = {f.tag, f.lease, f.length};
  note_arrived.set();
}

// ---- frames of a holder, to the owner
// ------------------------------------------------------------

void agent::on_request(const frame& f, unsigned slot) noexcept {
  errc why = errc::refused;
  const auto note_refusal = [&](std::string_view because) {
    char text[240];
    try {
      std::snprintf(text, sizeof text, "asked for %" PRIu64 " bytes of %s: %.*s", f.length,
                    to_string(f.access).c_str(), int(because.size()), because.data());
    } catch (const std::bad_alloc&) {
      std::snprintf(text, sizeof text, "asked for %" PRIu64 " bytes: %.*s", f.length,
                    int(because.size()), because.data());
    }
    context.last_refusal = {.code = why, .call = "lend", .detail = text};
  };
  try {
    return lends.grant_request(f, slot);
  } catch (const error& e) {
    // The peer is not told which of this end's own limits memory ran into.
    if (e.failure().call == std::string_view{"lend"}) why = errc(e.failure().code.value());
    note_refusal(e.failure().detail.view());
  } catch (const std::bad_alloc&) {
    note_refusal("no memory");
  }
  ++context.counters.refused;
  context.lending.totals().refused.add();
  if (context.last_refusal)
    context.log_lease(event_log::kind::lease_refused, std::size_t(f.length), {},
                      &*context.last_refusal);
  const bool tells_limit = why == errc::limit_exceeded || why == errc::access_denied;
  channel.reply(slot, refused(f.tag, why, tells_limit ? context.options.lending.bytes_max : 0));
}

void agent::on_accept(const frame& f) noexcept {
  grant* const g = lends.find(f.lease);
  // A peer cannot accept before it was offered, nor twice.
  if (g == nullptr || g->tag != 0 || is_unopened(g->state.now())) return;
  lends.accept(*g, f.tag);
}

void agent::on_renew(const frame& f, unsigned slot) noexcept {
  grant* const g = lends.find(f.lease);
  if (g == nullptr || g->tag != f.tag || g->state != grant_state::open)
    return channel.reply(slot, refused(f.tag, errc::lease_ended));
  const duration lease = std::min<duration>(f.duration, context.options.lending.lease_max);
  lends.renew(*g, lease);
  channel.reply(
      slot, {.kind = kind::renewed, .tag = f.tag, .duration = duration_cast<microseconds>(lease)});
}

void agent::on_give_back(const frame& f) noexcept {
  grant* const g = lends.find(f.lease);
  if (g == nullptr) return;
  if (g->state == grant_state::open && f.status == std::uint32_t(errc::lease_expired))
    g->reason = loan_end_reason::expired;
  lends.give_back(*g);
}

void agent::on_hand_over(const frame& f, unsigned slot) noexcept {
  grant* const g = lends.find(f.lease);
  const bool is_held = g != nullptr && g->tag == f.tag;
  if (is_held && g->state == grant_state::open) return lends.hand_over(*g, slot);
  channel.reply(slot, refused(f.tag, errc::lease_ended));
  // The holder uses the memory no more, whatever becomes of it.
  if (is_held && g->state == grant_state::asked) lends.give_back(*g);
}

// ---- frames of an owner, to the holder
// -----------------------------------------------------------

/// The holding that asked what the frame answers, which has asked nothing more.
holding& agent::answered(const frame& f, kind question) {
  holding* const h = borrows.find(f.tag);
  if (h == nullptr || !h->is_asking || h->question.is_linked()) fail_frame("answers no question");
  if (question != kind::refused && h->question.frame.kind != question)
    fail_frame("answers another question");
  h->is_asking = false;
  return *h;
}

void agent::on_granted(const frame& f) {
  holding& h = answered(f, kind::request);
  if (f.length != h.question.frame.length) fail_frame("grants another length");
  if (!verbs::allows(h.question.frame.access, f.access))
    fail_frame("grants more access than was asked");
  if (f.duration > h.question.frame.duration) fail_frame("grants a longer lease than was asked");
  if (f.address % (std::uint64_t{1} << h.question.frame.alignment_log2) != 0)
    fail_frame("grants another alignment");
  borrows.granted(h, f);
}

void agent::on_renewed(const frame& f) {
  holding& h = answered(f, kind::renew);
  if (f.duration > h.question.frame.duration) fail_frame("grants a longer lease than was asked");
  borrows.renewed(h, f.duration);
}

void agent::on_offer(const frame& f, unsigned slot) {
  if (!borrows.offer(f)) return channel.reply(slot, {.kind = kind::give_back, .lease = f.lease});
  channel.release(slot);
}

void agent::on_revoke(const frame& f) noexcept {
  // Without a tag: the owner has heard of no acceptance, though there may be one.
  holding* const h = f.tag == 0 ? borrows.find_by_lease(f.lease) : borrows.find(f.tag);
  if (h != nullptr && h->lease == f.lease) borrows.revoke(*h);
}

}  // namespace cordma
