#include "node/upcalls.hpp"
#include "qp/data_path.hpp"
#include "qp/relay.hpp"

namespace softverbs {
namespace {

/// The link to the peer; opens one if nothing is in flight. Null: the peer process does not exist.
link* route_to(queue_pair& qp, const send_request& request) noexcept {
  if (qp.type() == IBV_QPT_UD) return qp.local_node->link_to(request.datagram().to());
  requester_state& state = qp.requester;
  if (state.route == nullptr) {
    state.route = qp.local_node->link_to(qp.peer);
    if (state.route != nullptr) state.route_generation = state.route->generation();
  }
  return state.route;
}

/// Handles a link that went down: all requests in flight were not taken.
next_step lose_route(queue_pair& qp) noexcept {
  qp.requester.route = nullptr;
  if (qp.is_reliable()) rewind(qp);
  qp.request(qp.sends.next).offset = 0;
  return refused(qp, nak_code::dropped, 0);
}

enum class segment : std::uint8_t { gone, no_room, no_link, bad_memory };

/// Sends the next segment of the request; its bytes are copied straight into the ring.
segment send_segment(queue_pair& qp, send_request& request, link& route,
                     frame_header& header) noexcept {
  const bool carries = !is_answered_with_data(request.opcode);
  const std::uint32_t left = carries ? request.length - request.offset : 0;
  header.offset = request.offset;
  header.payload_bytes = std::min(left, static_cast<std::uint32_t>(segment_bytes_max));
  header.flags = static_cast<std::uint8_t>(header.flags & ~(frame_flag::first | frame_flag::last));
  if (request.offset == 0) header.flags |= frame_flag::first;
  if (header.payload_bytes == left) header.flags |= frame_flag::last;
  const link::frame_room room = route.reserve(header, qp.number());
  if (room.result == sent::full) return segment::no_room;
  if (room.result == sent::down) return segment::no_link;
  if (!gather(qp, qp.sends.next, request.offset, room.payload, header.payload_bytes)) {
    route.cancel();
    return segment::bad_memory;
  }
  route.commit();
  request.offset += header.payload_bytes;
  request.sent = (header.flags & frame_flag::last) != 0;
  return segment::gone;
}

/// The PSNs of the requests in flight, for matching answers.
class in_flight {
 public:
  explicit in_flight(queue_pair& qp) noexcept : qp_{qp}, ring_{qp.sends} {}

  [[nodiscard]] bool none() const noexcept { return ring_.completed == ring_.next; }
  [[nodiscard]] send_request& oldest() const noexcept { return qp_.request(ring_.completed); }

  /// True if everything up to `psn` was sent and a part of it is in flight.
  [[nodiscard]] bool covers(std::uint32_t psn) const noexcept {
    return !none() && psn_distance(oldest().psn, psn) >= 0 &&
           psn_distance(psn, qp_.requester.psn) > 0;
  }
  /// Completes the requests up to `psn`. False: one of them is a READ or an atomic without its
  /// answer.
  bool done_to(std::uint32_t psn) noexcept {
    while (!none() && psn_distance(oldest().psn, psn) >= 0) {
      if (is_answered_with_data(oldest().opcode)) return false;
      complete_oldest(qp_, IBV_WC_SUCCESS);
    }
    return true;
  }
  /// True if this PSN is in flight; a request at the head that was sent in part counts.
  [[nodiscard]] bool has(std::uint32_t psn) const noexcept {
    const bool partly = ring_.next != ring_.posted && qp_.request(ring_.next).offset != 0;
    if (none() && !partly) return false;
    const std::int32_t left = psn_distance(psn, qp_.requester.psn);
    return psn_distance(oldest().psn, psn) >= 0 && (left > 0 || (partly && left == 0));
  }

 private:
  queue_pair& qp_;
  send_ring& ring_;
};

/// Handles a NAK. False: the NAK is invalid.
bool on_nak(queue_pair& qp, const frame_header& header) noexcept {
  in_flight open{qp};
  if (!open.has(header.psn)) return true;  // The NAK belongs to a transmission before a rewind.
  // A refusal acknowledges all earlier requests; `dropped` does not.
  if (header.nak != nak_code::dropped) {
    if (!open.done_to((header.psn - 1) & psn_mask)) return false;
    if (!open.has(header.psn) || open.oldest().psn != header.psn) return false;
  }
  rewind(qp);
  refused(qp, header.nak, header.immediate);
  return true;
}

/// Takes the answer, or the next part of it, for the oldest open READ or atomic.
bool on_data(queue_pair& qp, const frame_header& header, const std::byte* payload) noexcept {
  in_flight open{qp};
  if (!open.has(header.psn)) return true;
  // The answer acknowledges all earlier requests.
  if (!open.done_to((header.psn - 1) & psn_mask) || open.none()) return false;
  send_request& request = open.oldest();
  const bool read = header.kind == frame_kind::read_response;
  const bool expected = request.psn == header.psn && request.sent &&
                        (read ? request.opcode == IBV_WR_RDMA_READ : is_atomic(request.opcode));
  if (!expected) return false;
  const auto* from = read ? payload : reinterpret_cast<const std::byte*>(&header.operand[0]);
  const std::uint32_t bytes = read ? header.payload_bytes : sizeof header.operand[0];
  if (read) {
    const std::uint32_t left = request.length - request.offset;
    if (header.message_bytes != request.length || header.offset != request.offset || bytes > left ||
        (bytes == 0 && left != 0))
      return false;
  }
  if (!scatter_answer(qp, qp.sends.completed, request.offset, from, bytes)) {
    rewind(qp);
    fail(qp, IBV_WC_LOC_PROT_ERR);
    return true;
  }
  request.offset += bytes;
  if (request.offset == request.length) {
    --qp.requester.reads_in_flight;
    complete_oldest(qp, IBV_WC_SUCCESS);
  }
  return true;
}

bool take_answer(queue_pair& qp, const frame_header& header, const std::byte* payload) noexcept {
  switch (header.kind) {
    case frame_kind::ack: {
      in_flight open{qp};
      // Any other answer belongs to a transmission before a reset or a rewind.
      return !open.covers(header.psn) || open.done_to(header.psn);
    }
    case frame_kind::nak: return on_nak(qp, header);
    case frame_kind::read_response:
    case frame_kind::atomic_response: return on_data(qp, header, payload);
    default: return false;
  }
}

}  // namespace

next_step now_in_flight(queue_pair& qp, send_request& request) noexcept {
  qp.requester.psn = (request.psn + packets_of(qp, request.length)) & psn_mask;
  request.offset = 0;
  if (!qp.is_reliable()) return succeed(qp);
  if (is_answered_with_data(request.opcode)) ++qp.requester.reads_in_flight;
  ++qp.sends.next;
  return next_step::go_on;
}

next_step execute_remote(queue_pair& qp, send_request& request, quantum& now) noexcept {
  if (request.offset == 0 && qp.is_reliable()) answer_before_request(qp);
  if (request.offset == 0 && !request.inlined && !local_memory_good(qp, qp.sends.next))
    return fail(qp, IBV_WC_LOC_PROT_ERR);
  link* route = route_to(qp, request);
  if (route == nullptr) return lose_route(qp);
  watch_route(qp, *route);
  frame_header header = header_for(qp, request);
  if (qp.transport == pattern::xrc) name_queue_of_head(qp, header);
  while (!request.sent) {
    if (now.over()) return next_step::next_quantum;
    switch (send_segment(qp, request, *route, header)) {
      case segment::gone:
        if (route->is_simulated()) [[unlikely]]
          note_sent(qp);
        now.spend_bytes(header.payload_bytes);
        break;
      case segment::no_room: return next_step::wait;
      case segment::no_link: return lose_route(qp);
      case segment::bad_memory: return fail(qp, IBV_WC_LOC_PROT_ERR);
    }
  }
  return now_in_flight(qp, request);
}

bool on_answer(node& local_node, link& from, const frame_header& header,
               const std::byte* payload) noexcept {
  qp_slot* slot = local_node.find(header.destination_qpn);
  if (slot == nullptr) return false;
  std::unique_lock lock{slot->send};
  queue_pair* qp = slot->qp;
  // An error, a reset or a new connection may have dropped the requests in flight.
  if (qp == nullptr || qp->requester.route != &from ||
      qp->requester.route_generation != from.generation() ||
      header.source_qpn != qp->terms.peer_qpn || header.epoch != qp->requester.epoch) {
    if (qp == nullptr || !qp->passed_on) return true;
    std::optional<frame_header> heard;
    {
      const std::lock_guard receive{slot->receive};
      heard = on_relay_answer(*qp, from, header);
    }
    lock.unlock();
    if (heard) answer_initiator(local_node, *heard);
    return true;
  }
  const ibv_qp_state state = qp->state.load(std::memory_order_acquire);
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return true;
  const std::uint64_t completed = qp->sends.completed;
  const bool honest = take_answer(*qp, header, payload);
  // A part of a READ's data unblocks nothing.
  if (header.kind != frame_kind::read_response || qp->sends.completed != completed) execute(*qp);
  return honest;
}

void answer_initiator(node& local_node, const frame_header& header) noexcept {
  qp_slot* const slot = local_node.find(header.destination_qpn);
  if (slot == nullptr) return;
  const std::lock_guard lock{slot->send};
  queue_pair* const qp = slot->qp;
  if (qp == nullptr || header.source_qpn != qp->terms.peer_qpn ||
      header.epoch != qp->requester.epoch)
    return;
  const ibv_qp_state state = qp->state.load(std::memory_order_acquire);
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return;
  static_cast<void>(take_answer(*qp, header, nullptr));
  execute(*qp);
}

void on_link_down(node& local_node, const link& dead, std::uint32_t generation,
                  std::uint32_t local_qpn) noexcept {
  qp_slot* slot = local_node.find(local_qpn);
  if (slot == nullptr) return;
  std::unique_lock lock{slot->send};
  queue_pair* qp = slot->qp;
  if (qp != nullptr && qp->passed_on) {
    std::optional<frame_header> heard;
    {
      const std::lock_guard receive{slot->receive};
      heard = on_relay_down(*qp, dead, generation);
    }
    lock.unlock();
    if (heard) answer_initiator(local_node, *heard);
    return;
  }
  if (qp == nullptr || qp->requester.route != &dead || qp->requester.route_generation != generation)
    return;
  qp->requester.route = nullptr;
  const bool idle = qp->sends.completed == qp->sends.posted;
  const ibv_qp_state state = qp->state.load(std::memory_order_acquire);
  if (idle || (state != IBV_QPS_RTS && state != IBV_QPS_SQD)) return;
  if (!qp->is_reliable()) {
    if (qp->sends.next != qp->sends.posted) qp->request(qp->sends.next).offset = 0;
  } else {
    rewind(*qp);
    refused(*qp, nak_code::dropped, 0);
  }
  execute(*qp);
}

}  // namespace softverbs
