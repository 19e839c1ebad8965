#include "holder_frames.hpp"

#include "borrower.hpp"

#include <bit>
#include <cinttypes>
#include <cstdio>

namespace cordma {

using agent_protocol::kind;
using std::chrono::duration_cast;
using std::chrono::microseconds;

namespace {

[[noreturn]] void fail_frame(const char* what) {
  throw error{{.code = errc::bad_frame, .call = "agent", .detail = what}};
}

void check_terms(const agent_protocol::frame& asked, const agent_protocol::frame& granted) {
  if (granted.length != asked.length) fail_frame("grants another length");
  if (!verbs::allows(asked.access, granted.access)) fail_frame("grants more access than was asked");
  if (granted.duration > asked.duration) fail_frame("grants a longer lease than was asked");
  if (granted.address % (std::uint64_t{1} << asked.alignment_log2) != 0)
    fail_frame("grants another alignment");
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

holder_frames::frame holder_frames::request(const holding& h, std::size_t size_bytes,
                                            const remote_mr_request& options) noexcept {
  return {.kind = kind::request,
          .tag = h.tag,
          .length = size_bytes,
          .access = options.access,
          .duration = duration_cast<microseconds>(duration{options.lease}),
          .alignment_log2 = std::uint8_t(std::countr_zero(options.alignment))};
}

holder_frames::frame holder_frames::renew(const holding& h, time_span lease) noexcept {
  return {.kind = kind::renew,
          .tag = h.tag,
          .lease = h.lease,
          .duration = duration_cast<microseconds>(duration{lease})};
}

holder_frames::frame holder_frames::hand_over(const holding& h) noexcept {
  return {.kind = kind::hand_over, .tag = h.tag, .lease = h.lease};
}
holder_frames::frame holder_frames::accept(const holding& h) noexcept {
  return {.kind = kind::accept, .tag = h.tag, .lease = h.lease};
}
holder_frames::frame holder_frames::give_back(const holding& h) noexcept {
  return {.kind = kind::give_back, .lease = h.lease, .status = std::uint32_t(h.status)};
}

/// The holding that asked what the frame answers, which has asked nothing more.
holder_frames::holding& holder_frames::answered(const frame& f, kind question) {
  holding* const h = borrows_.find(f.tag);
  if (h == nullptr || !h->is_asking || h->question.is_linked()) fail_frame("answers no question");
  if (question != kind::refused && h->asked.kind != question)
    fail_frame("answers another question");
  h->is_asking = false;
  return *h;
}

void holder_frames::on_granted(const frame& f) {
  holding& h = answered(f, kind::request);
  check_terms(h.asked, f);
  borrows_.granted(h, f);
}

void holder_frames::on_refused(const frame& f) {
  holding& h = answered(f, kind::refused);
  borrows_.refused(h, failure_of(f));
}

void holder_frames::on_renewed(const frame& f) {
  holding& h = answered(f, kind::renew);
  if (f.duration > h.asked.duration) fail_frame("grants a longer lease than was asked");
  borrows_.renewed(h, f.duration);
}

void holder_frames::on_handed_over(const frame& f) {
  borrows_.handed_over(answered(f, kind::hand_over));
}

void holder_frames::on_offer(const frame& f, unsigned slot) {
  if (!borrows_.offer(f))
    return context_.channel.reply(slot, {.kind = kind::give_back, .lease = f.lease});
  context_.channel.release(slot);
}

void holder_frames::on_revoke(const frame& f) noexcept {
  // Without a tag: the owner has heard of no acceptance, though there may be one.
  holding* const h = f.tag == 0 ? borrows_.find_by_lease(f.lease) : borrows_.find(f.tag);
  if (h != nullptr && h->lease == f.lease) borrows_.revoke(*h);
}

}  // namespace cordma
