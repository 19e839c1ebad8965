#include "qp/data_path.hpp"
#include "qp/relay.hpp"

namespace softverbs {
namespace {

bool is_set(const frame_header& header, std::uint8_t flag) noexcept {
  return (header.flags & flag) != 0;
}

/// Raises IBV_EVENT_COMM_EST at the first packet of a peer.
void note_established(queue_pair& qp) noexcept {
  if (qp.slot->expected.established) return;
  qp.slot->expected.established = true;
  if (qp.type() != IBV_QPT_UD && qp.state.load(std::memory_order_acquire) == IBV_QPS_RTR)
    raise(qp, IBV_EVENT_COMM_EST);
}

/// True if this piece is the expected one. A first piece starts a message.
bool in_sequence(queue_pair& qp, const frame_header& header) noexcept {
  expected_message& state = qp.slot->expected;
  if (is_set(header, frame_flag::first)) {
    // UC cannot request lost packets: it continues with the next message.
    if (header.transport == service::uc) state.psn = header.psn;
    if (header.psn != state.psn) return false;
    state.waits_for_resend = false;
    state.in_message = true;
    state.offset = 0;
    state.kind = header.kind;
    state.message_bytes = header.message_bytes;
    return true;
  }
  return state.in_message && header.psn == state.psn && header.offset == state.offset &&
         header.kind == state.kind && header.message_bytes == state.message_bytes;
}

bool well_formed(const incoming& piece) noexcept {
  const frame_header& header = piece.header;
  const bool first = is_set(header, frame_flag::first);
  const bool last = is_set(header, frame_flag::last);
  if (header.message_bytes > message_bytes_max || first != (header.offset == 0)) return false;
  // A remote READ requests everything at once; an atomic has no bytes.
  const bool has_bytes = header.kind == frame_kind::send || header.kind == frame_kind::write ||
                         piece.read_into != nullptr;
  if (!has_bytes) return first && last;
  if (header.payload_bytes > header.message_bytes - header.offset) return false;
  if (header.payload_bytes == 0 && header.message_bytes != 0) return false;
  return last == (header.offset + header.payload_bytes == header.message_bytes);
}

reply take_by_kind(queue_pair& qp, const incoming& piece) noexcept {
  switch (piece.header.kind) {
    case frame_kind::send: return take_send(qp, piece);
    case frame_kind::write: return take_write(qp, piece);
    case frame_kind::read:
      if (piece.header.transport == service::rc) return take_read(qp, piece);
      break;
    case frame_kind::compare_swap:
    case frame_kind::fetch_add:
    case frame_kind::atomic_write:
      if (piece.header.transport == service::rc) return take_atomic(qp, piece);
      break;
    default: break;
  }
  return {.nak = nak_code::invalid_request};
}

/// Executes a piece by `execute` if it is the next one.
template <class Execute>
[[gnu::always_inline]] inline reply take_in_sequence(queue_pair& qp, const incoming& piece,
                                                     Execute execute) noexcept {
  const frame_header& header = piece.header;
  expected_message& state = qp.slot->expected;
  if (!in_sequence(qp, header)) return {.nak = nak_code::dropped};
  const reply answer = well_formed(piece) ? execute() : reply{.nak = nak_code::invalid_request};
  // A refusal acknowledges earlier messages: it waits until other processes have answered them.
  if (answer.nak >= nak_code::invalid_request && qp.passed_on && !qp.passed_on->is_idle())
    return {.is_held = true};
  if (answer.nak != nak_code::none || answer.source_fault) {
    state.in_message = false;
    if (header.transport == service::rc && answer.nak >= nak_code::invalid_request)
      end_connection(qp, answer.nak);
    return answer;
  }
  state.offset += header.payload_bytes;
  if (is_set(header, frame_flag::last)) {
    state.in_message = false;
    state.psn = (header.psn + packets_of(qp, header.message_bytes)) & psn_mask;
  }
  return answer;
}

bool is_cut(const queue_pair& qp) noexcept {
  return qp.disturbed.load(std::memory_order_relaxed) && qp.cut.load(std::memory_order_relaxed);
}

}  // namespace

void end_connection(queue_pair& qp, nak_code why) noexcept {
  if (qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR) return;
  qp.responder.event_due =
      why == nak_code::remote_access ? IBV_EVENT_QP_ACCESS_ERR : IBV_EVENT_QP_REQ_ERR;
  enter_error(qp);
}

bool listens_to(const queue_pair& qp, const frame_header& header) noexcept {
  return is_receiving(qp) &&
         static_cast<std::uint8_t>(header.transport) == static_cast<std::uint8_t>(qp.transport);
}

reply take(queue_pair& qp, const incoming& piece) noexcept {
  if (is_cut(qp)) return {.nak = nak_code::dropped};
  note_established(qp);
  if (piece.header.transport == service::ud) return take_datagram(qp, piece);
  return take_in_sequence(qp, piece, [&] { return take_by_kind(qp, piece); });
}

reply take_by_relay(queue_pair& target, const incoming& piece, std::uint32_t number) noexcept {
  if (is_cut(target)) return {.nak = nak_code::dropped};
  note_established(target);
  const expected_message before = target.slot->expected;
  const reply answer =
      take_in_sequence(target, piece, [&] { return pass_on(target, piece, number); });
  // The piece comes again when there is room, or no answer is open.
  if (answer.is_held) {
    target.slot->expected = before;
    target.slot->expected.established = true;
  }
  return answer;
}

reply respond(node& local_node, const local_piece& piece, responder_lock& lock) noexcept {
  qp_slot* slot = local_node.find(piece.header.destination_qpn);
  if (slot == nullptr) return {.nak = nak_code::dropped};
  lock.take(slot->receive);
  queue_pair* qp = slot->qp;
  if (qp == nullptr) return {.nak = nak_code::dropped};
  if (qp->type() != IBV_QPT_UD &&
      (piece.header.source_qpn != qp->terms.peer_qpn || !qp->is_peer_local))
    return {.nak = nak_code::dropped};
  const incoming what{.header = piece.header,
                      .bytes = piece.bytes.data(),
                      .read_into = piece.read_into,
                      .from = nullptr};
  const reply answer = listens_to(*qp, piece.header) ? take(*qp, what) : take_for_queue(*qp, what);
  if (answer.nak != nak_code::none) raise_due(*qp);
  return answer;
}

}  // namespace softverbs
