#include "node/upcalls.hpp"

#include "multicast/group.hpp"
#include "qp/data_path.hpp"
#include "qp/relay.hpp"

namespace softverbs {

namespace {

/// True if the request comes from the peer to which this QP is, or was, connected.
bool is_peer(const queue_pair& qp, const frame_header& header, const link& from) noexcept {
  return header.transport == service_of(qp) && header.source_qpn == qp.terms.peer_qpn &&
         qp.peer == from.peer();
}

/// True if the request belongs to the connection that this QP serves. A request of another epoch
/// starts that epoch if it is exactly the expected one. The answers that the old epoch was still
/// due are dropped then: nobody waits for them.
bool accept_epoch(queue_pair& qp, const frame_header& header) noexcept {
  responder_state& state = qp.responder;
  expected_message& expected = qp.slot->expected;
  if (header.epoch == state.epoch) return true;
  if ((header.flags & frame_flag::first) == 0 || header.psn != expected.psn) return false;
  state.epoch = header.epoch;
  expected.waits_for_resend = false;
  expected.in_message = false;
  state.ack_due = false;
  state.nak_due = nak_code::none;
  state.answers_head = state.answers_tail;
  return true;
}

/// True for a request that was taken before, or that belongs to an earlier connection.
bool is_old(const queue_pair& qp, const frame_header& header, const reply& answer) noexcept {
  return answer.nak == nak_code::dropped && psn_distance(qp.slot->expected.psn, header.psn) < 0;
}

/// Sends what a target owes, or ends an initiator's wait for a target in this process.
void run_xrc(queue_pair& qp) noexcept {
  if (!is_target(qp)) {
    if (qp.is_peer_local) check_target(qp);
    return;
  }
  const std::lock_guard receive{qp.slot->receive};
  send_orphans(*qp.local_node, *qp.slot, qp.number());
  send_owed(qp);
}

}  // namespace

void run(node& local_node, std::uint32_t qpn) noexcept {
  qp_slot* slot = local_node.find(qpn);
  if (slot == nullptr) return;
  std::lock_guard send{slot->send};
  queue_pair* qp = slot->qp;
  if (qp == nullptr) {
    const std::lock_guard receive{slot->receive};
    return send_orphans(local_node, *slot, qpn);
  }
  if (slot->changes.load() != 0) return;
  if (qp->requester.watch_at != clock::time_point{}) check_route(*qp);
  if (qp->transport == pattern::xrc) run_xrc(*qp);
  if (qp->state.load(std::memory_order_acquire) != IBV_QPS_ERR) execute(*qp);
  if (qp->state.load(std::memory_order_acquire) == IBV_QPS_ERR) {
    std::lock_guard receive{slot->receive};
    flush(*qp);
  }
}

bool on_request(node& local_node, link& from, const frame_header& header,
                const std::byte* payload) noexcept {
  if (header.destination_qpn == no_qpn) {
    if (header.transport == service::relay) return on_relayed(local_node, from, header, payload);
    if (header.transport == service::ud) on_multicast(local_node, from, header, payload);
    return header.transport == service::ud || reject(from, header);
  }
  qp_slot* slot = local_node.find(header.destination_qpn);
  if (slot == nullptr) return reject(from, header);
  std::lock_guard lock{slot->receive};
  if (!send_orphans(*slot, from, header.destination_qpn)) return false;
  queue_pair* qp = slot->qp;
  const bool datagram = header.transport == service::ud;
  if (qp == nullptr || (!datagram && !is_peer(*qp, header, from))) return reject(from, header);
  const bool reliable = header.transport == service::rc;
  if (reliable) {
    if (!send_due_nak(*qp, from)) return false;
    if (!accept_epoch(*qp, header)) return reject(from, header);
  }
  const incoming piece{.header = header, .bytes = payload, .read_into = nullptr, .from = &from};
  const reply answer = listens_to(*qp, header) ? take(*qp, piece) : take_for_queue(*qp, piece);
  if (answer.is_passed_on || answer.is_held) {
    qp->responder.route = &from;
    qp->responder.route_generation = from.generation();
    return !answer.is_held;
  }
  if (reliable) {
    if (is_old(*qp, header, answer)) return reject(from, header);
    schedule_answer(*qp, piece, answer);
    if (qp->responder.event_due) static_cast<void>(send_due_nak(*qp, from));
  }
  raise_due(*qp);
  return true;
}

}  // namespace softverbs
