#include "owner_frames.hpp"

#include "lender.hpp"

#include <algorithm>
#include <cinttypes>
#include <cstdio>
#include <new>

namespace cordma {

using agent_protocol::kind;
using std::chrono::duration_cast;
using std::chrono::microseconds;

namespace {

agent_protocol::frame terms_of(const detail::grant& g, kind k) noexcept {
  return {.kind = k,
          .tag = g.tag,
          .lease = g.id,
          .length = g.size_bytes,
          .address = g.remote.address(),
          .rkey = g.remote.rkey(),
          .access = g.access,
          .duration = duration_cast<microseconds>(g.lease),
          .isolation = std::uint8_t(g.isolation)};
}

/// Bytes of the policy that a request takes. An alignment can take more memory than the length.
std::size_t cost_of(const agent_protocol::frame& request) noexcept {
  return std::max<std::uint64_t>(request.length, std::uint64_t{1} << request.alignment_log2);
}

}  // namespace

owner_frames::frame owner_frames::granted(const grant& g) noexcept {
  return terms_of(g, kind::granted);
}
owner_frames::frame owner_frames::offer(const grant& g) noexcept {
  return terms_of(g, kind::offer);
}
owner_frames::frame owner_frames::revoke(const grant& g) noexcept {
  return {.kind = kind::revoke, .tag = g.tag, .lease = g.id};
}
owner_frames::frame owner_frames::handed_over(const grant& g) noexcept {
  return {.kind = kind::handed_over, .tag = g.tag};
}
owner_frames::frame owner_frames::refused(std::uint64_t tag, errc why,
                                          std::uint64_t limit) noexcept {
  return {.kind = kind::refused, .tag = tag, .length = limit, .status = std::uint32_t(why)};
}

void owner_frames::on_request(const frame& f, unsigned slot) noexcept {
  const lending_policy& policy = context_.options.lending;
  errc why = errc::refused;
  try {
    check_request(f);
    return lends_.grant_request({.size_bytes = f.length,
                                 .cost = cost_of(f),
                                 .alignment = std::size_t{1} << f.alignment_log2,
                                 .access = f.access & policy.access_max,
                                 .lease = std::min<duration>(f.duration, policy.lease_max),
                                 .tag = f.tag,
                                 .slot = slot});
  } catch (const error& e) {
    // The peer is not told which of this end's own limits memory ran into.
    if (e.failure().call == std::string_view{"lend"}) why = errc(e.failure().code.value());
    note_refusal(f, why, e.failure().detail.view());
  } catch (const std::bad_alloc&) {
    note_refusal(f, why, "no memory");
  }
  ++context_.counters.refused;
  const bool tells_limit = why == errc::limit_exceeded || why == errc::access_denied;
  context_.channel.reply(slot, refused(f.tag, why, tells_limit ? policy.bytes_max : 0));
}

void owner_frames::check_request(const frame& request) const {
  const lending_policy& policy = context_.options.lending;
  if (policy.bytes_max == 0)
    refuse_to_lend(errc::access_denied, "lending_policy::bytes_max is 0, which grants nothing");
  if ((request.access & policy.access_max) == verbs::access::none)
    refuse_to_lend(errc::access_denied, "lending_policy::access_max leaves nothing of that");
  if (cost_of(request) > lends_.left_bytes())
    refuse_to_lend(errc::limit_exceeded, "more than is left of lending_policy::bytes_max");
}

void owner_frames::note_refusal(const frame& request, errc why, std::string_view because) noexcept {
  char text[240];
  std::snprintf(text, sizeof text, "asked for %" PRIu64 " bytes of %s: %.*s", request.length,
                to_string(request.access).c_str(), int(because.size()), because.data());
  context_.last_refusal = {.code = why, .call = "lend", .detail = text};
}

void owner_frames::on_accept(const frame& f) noexcept {
  grant* const g = lends_.find(f.lease);
  // A peer cannot accept before it was offered, nor twice.
  if (g == nullptr || g->tag != 0 || is_unopened(g->state.now())) return;
  lends_.accept(*g, f.tag);
}

void owner_frames::on_renew(const frame& f, unsigned slot) noexcept {
  grant* const g = lends_.find(f.lease);
  if (g == nullptr || g->tag != f.tag || g->state != grant_state::open)
    return context_.channel.reply(slot, refused(f.tag, errc::lease_ended));
  const duration lease = std::min<duration>(f.duration, context_.options.lending.lease_max);
  lends_.renew(*g, lease);
  context_.channel.reply(
      slot, {.kind = kind::renewed, .tag = f.tag, .duration = duration_cast<microseconds>(lease)});
}

void owner_frames::on_give_back(const frame& f) noexcept {
  grant* const g = lends_.find(f.lease);
  if (g == nullptr) return;
  if (g->state == grant_state::open && f.status == std::uint32_t(errc::lease_expired))
    g->reason = loan_end_reason::expired;
  lends_.give_back(*g);
}

void owner_frames::on_hand_over(const frame& f, unsigned slot) noexcept {
  grant* const g = lends_.find(f.lease);
  const bool is_held = g != nullptr && g->tag == f.tag;
  if (is_held && g->state == grant_state::open) return lends_.hand_over(*g, slot);
  context_.channel.reply(slot, refused(f.tag, errc::lease_ended));
  // The holder uses the memory no more, whatever becomes of it.
  if (is_held && g->state == grant_state::asked) lends_.give_back(*g);
}

}  // namespace cordma
