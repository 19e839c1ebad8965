#include "qp/data_path.hpp"
#include "qp/xrc.hpp"

namespace softverbs {
namespace {

/// Calls the peer's responder, whose lock is kept if another request follows.
reply call_responder(queue_pair& qp, const local_piece& piece, quantum& now) noexcept {
  const reply answer = respond(*qp.local_node, piece, now.responder());
  now.responder().taken(piece.header.payload_bytes, qp.sends.next + 1 != qp.sends.posted);
  return answer;
}

next_step execute_local_atomic(queue_pair& qp, send_request& request, frame_header& header,
                               quantum& now) noexcept {
  header.flags |= frame_flag::first | frame_flag::last;
  if (!local_memory_good(qp, qp.sends.next)) return fail(qp, IBV_WC_LOC_PROT_ERR);
  const reply answer = call_responder(qp, {.header = header, .bytes = {}}, now);
  if (answer.is_held) return next_step::wait;
  if (answer.nak != nak_code::none) return refused(qp, answer.nak, answer.rnr_timer);
  qp.requester.psn = (request.psn + 1) & psn_mask;
  const auto* from = reinterpret_cast<const std::byte*>(&answer.previous);
  if (!scatter_answer(qp, qp.sends.next, 0, from, sizeof answer.previous))
    return fail(qp, IBV_WC_LOC_PROT_ERR);
  return succeed(qp);
}

/// Transfers one piece of the source or sink.
[[gnu::always_inline]] inline reply exchange(queue_pair& qp, const send_request& request,
                                             frame_header& header, sge_cursor& cursor, quantum& now,
                                             std::uint32_t bytes_max) noexcept {
  const std::uint32_t offset = request.offset;
  const std::uint32_t left = request.length - offset;
  const bool reads = request.opcode == IBV_WR_RDMA_READ;
  pinned pin;
  std::byte* at = nullptr;
  std::uint32_t bytes = left;
  if (request.inlined) {
    at = request.data() + offset;
  } else if (left != 0) {
    const local_part part = cursor.next(std::min(left, bytes_max));
    bytes = part.bytes;
    if (!pin_local(*qp.local_node, qp.pd, part, reads ? unsigned{IBV_ACCESS_LOCAL_WRITE} : 0u, pin))
      return {.source_fault = true};
    at = pin.address();
  }
  header.offset = offset;
  header.payload_bytes = bytes;
  header.flags = static_cast<std::uint8_t>(header.flags & ~(frame_flag::first | frame_flag::last));
  if (offset == 0) header.flags |= frame_flag::first;
  if (bytes == left) header.flags |= frame_flag::last;
  return call_responder(
      qp, {.header = header, .bytes = {at, reads ? 0 : bytes}, .read_into = reads ? at : nullptr},
      now);
}

/// Sends a datagram, which is always one piece.
next_step execute_local_datagram(queue_pair& qp, send_request& request, quantum& now) noexcept {
  std::byte gathered[port_mtu_bytes];
  frame_header header = header_for(qp, request);
  header.flags |= frame_flag::first | frame_flag::last;
  header.payload_bytes = request.length;
  const std::byte* from = request.data();
  if (!request.inlined) {
    if (!gather(qp, qp.sends.next, 0, gathered, request.length))
      return fail(qp, IBV_WC_LOC_PROT_ERR);
    from = gathered;
  }
  respond(*qp.local_node, {.header = header, .bytes = {from, request.length}}, now.responder());
  now.responder().release();  // The next datagram may have another peer.
  now.spend_bytes(request.length);
  return succeed(qp);
}

/// XRC: true if the target in this process passes the request on to another one, or refuses it.
bool is_passed_on(queue_pair& qp) noexcept {
  return slot_of(qp.queue_of(qp.sends.next)) != qp.local_node->slot();
}

/// Sends a message to a target that passes it on. The answer comes later, as from another process.
next_step execute_passed_on(queue_pair& qp, send_request& request, frame_header& header,
                            quantum& now) noexcept {
  if (request.offset == 0 && !request.inlined && !local_memory_good(qp, qp.sends.next))
    return fail(qp, IBV_WC_LOC_PROT_ERR);
  sge_cursor cursor{request.sges(), request.sge_count, request.offset};
  do {
    const reply answer = exchange(qp, request, header, cursor, now, segment_bytes_max);
    if (answer.is_held) return next_step::wait;
    if (answer.source_fault) return fail(qp, IBV_WC_LOC_PROT_ERR);
    if (answer.nak != nak_code::none) {
      request.offset = 0;
      return refused(qp, answer.nak, answer.rnr_timer);
    }
    request.offset += header.payload_bytes;
    now.spend_bytes(header.payload_bytes);
    if (qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR) return next_step::go_on;
    if (request.offset != request.length && now.over()) return next_step::next_quantum;
  } while (request.offset != request.length);
  request.sent = true;
  return now_in_flight(qp, request);
}

[[gnu::always_inline]] inline next_step execute_in_pieces(queue_pair& qp, send_request& request,
                                                          frame_header& header,
                                                          quantum& now) noexcept {
  // Check the whole list first: a bad end must fail before the first piece is sent.
  const bool in_pieces = request.sge_count > 1 || request.length > piece_bytes_max;
  if (in_pieces && request.offset == 0 && !request.inlined && !local_memory_good(qp, qp.sends.next))
    return fail(qp, IBV_WC_LOC_PROT_ERR);
  sge_cursor cursor{request.sges(), request.sge_count, request.offset};
  for (;;) {
    const reply answer = exchange(qp, request, header, cursor, now, piece_bytes_max);
    if (answer.source_fault) return fail(qp, IBV_WC_LOC_PROT_ERR);
    if (answer.nak != nak_code::none) {
      request.offset = 0;  // A retry starts at the beginning.
      return refused(qp, answer.nak, answer.rnr_timer);
    }
    request.offset += header.payload_bytes;
    now.spend_bytes(header.payload_bytes);
    if (request.opcode == IBV_WR_RDMA_READ) now.note_read(header.payload_bytes);
    if (request.offset == request.length) break;
    // A piece to itself may have moved the QP to ERR: the rest flushes.
    if (qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR) return next_step::go_on;
    if (now.over()) return next_step::next_quantum;
  }
  qp.requester.psn = (request.psn + packets_of(qp, request.length)) & psn_mask;
  return succeed(qp);
}

/// Datagrams, and XRC.
next_step execute_local_other(queue_pair& qp, send_request& request, quantum& now) noexcept {
  if (qp.type() == IBV_QPT_UD) return execute_local_datagram(qp, request, now);
  frame_header header = header_for(qp, request);
  name_queue_of_head(qp, header);
  if (is_atomic(request.opcode)) return execute_local_atomic(qp, request, header, now);
  if (is_passed_on(qp)) return execute_passed_on(qp, request, header, now);
  return execute_in_pieces(qp, request, header, now);
}

}  // namespace

next_step execute_local(queue_pair& qp, send_request& request, quantum& now) noexcept {
  if (qp.type() >= IBV_QPT_UD) return execute_local_other(qp, request, now);
  frame_header header = header_for(qp, request);
  if (is_atomic(request.opcode)) return execute_local_atomic(qp, request, header, now);
  return execute_in_pieces(qp, request, header, now);
}

}  // namespace softverbs
