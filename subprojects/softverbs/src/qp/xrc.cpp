#include "qp/xrc.hpp"

#include "qp/relay.hpp"

namespace softverbs {
namespace {

bool is_first_expected(const queue_pair& target, const frame_header& header) noexcept {
  return (header.flags & frame_flag::first) != 0 && header.psn == target.slot->expected.psn;
}

/// The piece in a form that is refused as invalid when its turn comes.
frame_header spoiled(frame_header header) noexcept {
  header.flags = static_cast<std::uint8_t>(header.flags & ~frame_flag::last);
  header.payload_bytes = ~std::uint32_t{0};
  return header;
}

/// Notes the queue that a new message names. A receive of another queue, which an abandoned message
/// took, ends.
void begin_message(queue_pair& target, std::uint32_t number) noexcept {
  if (target.responder.has_request && target.responder.queue != number) flush_request(target);
  target.responder.queue = number;
}

}  // namespace

lent_queue::lent_queue(queue_pair& target, std::uint32_t number) noexcept
    : target_{target}, pin_{number, target.domain_id} {
  shared_receive_queue* const srq = pin_.get();
  if (srq == nullptr) return;
  target.pd = srq->pd;
  target.handle.qp_base.srq = &srq->handle;
  target.handle.qp_base.recv_cq = srq->cq;
}

lent_queue::~lent_queue() {
  if (pin_.get() == nullptr) return;
  target_.pd = nullptr;
  target_.handle.qp_base.srq = nullptr;
  target_.handle.qp_base.recv_cq = nullptr;
}

reply take_for_queue(queue_pair& qp, const incoming& piece) noexcept {
  const frame_header& header = piece.header;
  if (!is_target(qp) || !is_receiving(qp) || header.transport != service_of(qp))
    return {.nak = nak_code::dropped};
  const std::uint32_t number = named_queue(header);
  const bool is_foreign = number <= qpn_max && slot_of(number) != qp.local_node->slot();
  const bool passes_on = qp.passed_on && is_foreign && qp.domain_id.is_shared();
  // An initiator waits for the answers of other processes before it names a queue of this one.
  if (qp.passed_on && !passes_on && !qp.passed_on->is_idle()) return {.nak = nak_code::dropped};
  if (is_first_expected(qp, header)) begin_message(qp, number);
  if (passes_on) return take_by_relay(qp, piece, number);
  const lent_queue queue{qp, number};
  // A later piece may not name another queue than the first one.
  if (!queue || number != qp.responder.queue) {
    const frame_header invalid = spoiled(header);
    return take(qp, {.header = invalid,
                     .bytes = piece.bytes,
                     .read_into = piece.read_into,
                     .from = piece.from});
  }
  reply answer = take(qp, piece);
  if (header.kind == frame_kind::read) answer.previous = number;
  return answer;
}

void flush_request(queue_pair& qp) noexcept {
  const frame_header nothing{};
  if (!is_target(qp)) return complete_receive(qp, nothing, IBV_WC_WR_FLUSH_ERR);
  const lent_queue queue{qp, qp.responder.queue};
  if (queue)
    complete_receive(qp, nothing, IBV_WC_WR_FLUSH_ERR);
  else
    qp.responder.has_request = false;  // The queue was destroyed.
}

}  // namespace softverbs
