#include "node/upcalls.hpp"
#include "qp/data_path.hpp"
#include "qp/relay.hpp"

namespace softverbs {
namespace {

/// The waiter of an answer that found no room: none, because the link calls send_answers() again.
constexpr std::uint32_t nobody = 0;

frame_header answer_header(frame_kind kind, std::uint32_t from_qpn, std::uint32_t to_qpn,
                           std::uint32_t epoch, std::uint32_t psn) noexcept {
  frame_header header{};
  header.kind = kind;
  header.transport = service::rc;
  header.source_qpn = from_qpn;
  header.destination_qpn = to_qpn;
  header.epoch = epoch;
  header.psn = psn;
  return header;
}

/// Sends a frame without payload. False: no room. On a link that is down the answer is dropped.
bool send_bare(link& to, const frame_header& header) noexcept {
  const sent result = to.reserve(header, nobody).result;
  if (result == sent::yes) to.commit();
  return result != sent::full;
}

bool send_nak(link& to, std::uint32_t from_qpn, std::uint32_t to_qpn, std::uint32_t epoch,
              std::uint32_t psn, nak_code why, std::uint32_t rnr_timer) noexcept {
  frame_header header = answer_header(frame_kind::nak, from_qpn, to_qpn, epoch, psn);
  header.nak = why;
  header.immediate = rnr_timer;
  return send_bare(to, header);
}

bool send_orphan(link& to, std::uint32_t local_qpn, const orphaned_answer& orphan) noexcept {
  if (orphan.generation != to.generation()) return true;
  if (orphan.nak == nak_code::none)
    return send_bare(
        to, answer_header(frame_kind::ack, local_qpn, orphan.requester, orphan.epoch, orphan.psn));
  return send_nak(to, local_qpn, orphan.requester, orphan.epoch, orphan.psn, orphan.nak, 0);
}

/// Keeps an answer for a QP that is gone. A link has at most two: on_request() takes no further
/// request from the link before they are sent.
void keep_orphan(qp_slot& slot, const orphaned_answer& answer) noexcept {
  std::erase_if(slot.orphans,
                [](const orphaned_answer& old) { return old.generation != old.to->generation(); });
  try {
    slot.orphans.push_back(answer);
  } catch (const std::bad_alloc&) {
    // The requester then waits until the link ends.
  }
}

/// Replaces the answer at the head and all later ones with a NAK.
void answer_with_nak(responder_state& state, std::uint32_t psn, nak_code why) noexcept {
  state.nak_due = why;
  state.nak_psn = psn;
  state.ack_due = false;
  state.answers_head = state.answers_tail;
}

/// The most segments that a QP sends in one quantum. Without the bound, a requester that takes them
/// at once would keep the serving thread from all other QPs.
constexpr std::uint32_t segments_per_quantum = batch_bytes_max / segment_bytes_max;

enum class progress : std::uint8_t { done, later, failed };

progress send_read_response(queue_pair& qp, link& to, pending_answer& answer,
                            std::uint32_t& segments_left) noexcept {
  // A target of XRC reads memory of the domain of the queue that was named.
  std::optional<lent_queue> queue;
  if (qp.pd == nullptr) queue.emplace(qp, static_cast<std::uint32_t>(answer.previous));
  frame_header header = answer_header(frame_kind::read_response, qp.number(), qp.terms.peer_qpn,
                                      qp.responder.epoch, answer.psn);
  header.message_bytes = answer.bytes;
  do {
    if (segments_left-- == 0) return progress::later;
    header.offset = answer.offset;
    header.payload_bytes =
        std::min(answer.bytes - answer.offset, static_cast<std::uint32_t>(segment_bytes_max));
    const link::frame_room room = to.reserve(header, nobody);
    if (room.result == sent::full) return progress::later;
    if (room.result == sent::down) return progress::done;
    pinned pin;
    if (header.payload_bytes != 0 &&
        (qp.local_node->keys().pin(answer.rkey, qp.pd, qp.number(), IBV_ACCESS_REMOTE_READ,
                                   answer.remote_address, answer.bytes, pin) != key_error::none ||
         !guarded_copy(room.payload, pin.address() + answer.offset, header.payload_bytes))) {
      to.cancel();
      return progress::failed;
    }
    to.commit();
    answer.offset += header.payload_bytes;
  } while (answer.offset < answer.bytes);
  return progress::done;
}

progress send_atomic_response(queue_pair& qp, link& to, const pending_answer& answer) noexcept {
  frame_header header = answer_header(frame_kind::atomic_response, qp.number(), qp.terms.peer_qpn,
                                      qp.responder.epoch, answer.psn);
  header.message_bytes = answer.bytes;
  header.operand[0] = answer.previous;
  return send_bare(to, header) ? progress::done : progress::later;
}

/// Sends the answers of READs and atomics, in order. False: some are left.
bool send_data(queue_pair& qp, link& to) noexcept {
  responder_state& state = qp.responder;
  std::uint32_t segments_left = segments_per_quantum;
  while (state.answers_head != state.answers_tail) {
    pending_answer& answer = state.answers[state.answers_head % rd_atomic_max];
    // No NAK reports this error: hardware would not answer.
    const bool gone =
        qp.state.load(std::memory_order_acquire) == IBV_QPS_ERR && state.nak_due == nak_code::none;
    if (gone) {
      answer_with_nak(state, answer.psn, nak_code::dropped);
      return true;
    }
    switch (answer.kind == frame_kind::read ? send_read_response(qp, to, answer, segments_left)
                                            : send_atomic_response(qp, to, answer)) {
      case progress::later: return false;
      case progress::done: ++state.answers_head; break;
      case progress::failed:
        answer_with_nak(state, answer.psn, nak_code::remote_access);
        state.event_due = IBV_EVENT_QP_ACCESS_ERR;
        enter_error(qp);
        return true;
    }
  }
  return true;
}

bool send_all_due(queue_pair& qp, link& to) noexcept {
  responder_state& state = qp.responder;
  if (!send_data(qp, to)) return false;
  const std::uint32_t requester = qp.terms.peer_qpn;
  if (state.ack_due) {
    if (!send_bare(
            to, answer_header(frame_kind::ack, qp.number(), requester, state.epoch, state.ack_psn)))
      return false;
    state.ack_due = false;
  }
  if (state.nak_due != nak_code::none) {
    if (!send_nak(to, qp.number(), requester, state.epoch, state.nak_psn, state.nak_due,
                  qp.attr.min_rnr_timer))
      return false;
    state.nak_due = nak_code::none;
  }
  return true;
}

void schedule_data(responder_state& state, const frame_header& header,
                   const reply& answer) noexcept {
  state.ack_due = false;  // The answer acknowledges all earlier requests.
  state.answers[state.answers_tail++ % rd_atomic_max] = {.kind = header.kind,
                                                         .psn = header.psn,
                                                         .rkey = header.rkey,
                                                         .remote_address = header.remote_address,
                                                         .bytes = header.message_bytes,
                                                         .offset = 0,
                                                         .previous = answer.previous};
}

/// Schedules a NAK. False: an earlier NAK is outstanding; the requester sends this request again
/// after that one.
bool schedule_nak(queue_pair& qp, const frame_header& header, nak_code why) noexcept {
  responder_state& state = qp.responder;
  const std::int32_t past = psn_distance(state.nak_psn, header.psn);
  const bool follows = past > 0 || (past == 0 && (header.flags & frame_flag::first) == 0);
  if (qp.slot->expected.waits_for_resend && follows) return false;
  qp.slot->expected.waits_for_resend = true;
  state.nak_due = why;
  state.nak_psn = header.psn;
  return true;
}

}  // namespace

bool send_due(queue_pair& qp, link& to) noexcept {
  const bool all = send_all_due(qp, to);
  raise_due(qp);
  return all;
}

bool acknowledge(queue_pair& qp, const incoming& piece) noexcept {
  const frame_header& header = piece.header;
  responder_state& state = qp.responder;
  if (piece.from == nullptr || header.transport != service::rc) return false;
  if (state.answers_head != state.answers_tail) return false;
  if (!send_bare(*piece.from, answer_header(frame_kind::ack, qp.number(), qp.terms.peer_qpn,
                                            state.epoch, header.psn)))
    return false;
  state.ack_due = false;
  return true;
}

void schedule_answer(queue_pair& qp, const incoming& piece, const reply& answer) noexcept {
  const frame_header& header = piece.header;
  responder_state& state = qp.responder;
  state.route = piece.from;
  state.route_generation = piece.from->generation();
  if (answer.is_acknowledged) return;
  // Unreadable bytes were not taken: the requester may send them again.
  const nak_code why = answer.source_fault ? nak_code::dropped : answer.nak;
  if (why == nak_code::none) {
    if ((header.flags & frame_flag::last) == 0) return;
    if (header.kind == frame_kind::send || header.kind == frame_kind::write) {
      state.ack_due = true;
      state.ack_psn = header.psn;
    } else {
      schedule_data(state, header, answer);
    }
  } else if (!schedule_nak(qp, header, why)) {
    return;
  }
  piece.from->answer_later(qp.number());
}

bool send_due_nak(queue_pair& qp, link& to) noexcept {
  const responder_state& state = qp.responder;
  return state.nak_due == nak_code::none || state.route != &to ||
         state.route_generation != to.generation() || send_due(qp, to);
}

bool reject(link& from, const frame_header& header) noexcept {
  constexpr std::uint8_t ends = frame_flag::first | frame_flag::last;
  if (header.transport != service::rc || (header.flags & ends) == 0) return true;
  return send_nak(from, header.destination_qpn, header.source_qpn, header.epoch, header.psn,
                  nak_code::dropped, 0);
}

bool send_orphans(qp_slot& slot, link& to, std::uint32_t local_qpn) noexcept {
  const auto of_link = [&to](const orphaned_answer& orphan) { return orphan.to == &to; };
  for (;;) {
    const auto next = std::find_if(slot.orphans.begin(), slot.orphans.end(), of_link);
    if (next == slot.orphans.end()) return true;
    if (!send_orphan(to, local_qpn, *next)) return false;
    slot.orphans.erase(next);
  }
}

void send_orphans(node& local_node, qp_slot& slot, std::uint32_t local_qpn) noexcept {
  std::erase_if(slot.orphans, [local_qpn](const orphaned_answer& orphan) {
    return send_orphan(*orphan.to, local_qpn, orphan);
  });
  constexpr std::chrono::microseconds room_check_time{50};
  if (!slot.orphans.empty()) local_node.wake_at(local_qpn, clock::now() + room_check_time);
}

void orphan_answers(queue_pair& qp) noexcept {
  responder_state& state = qp.responder;
  const bool has_passed_on = qp.passed_on && !qp.passed_on->is_idle();
  if (state.route == nullptr) return;
  orphaned_answer left{.to = state.route,
                       .generation = state.route_generation,
                       .requester = qp.terms.peer_qpn,
                       .epoch = state.epoch,
                       .psn = 0,
                       .nak = nak_code::none};
  if (has_passed_on && state.answers_head == state.answers_tail) {
    left.psn = qp.passed_on->oldest();
    left.nak = nak_code::dropped;
    keep_orphan(*qp.slot, left);
    qp.local_node->kick(qp.number());  // The link does not know of this answer.
    return;
  }
  if (state.answers_head != state.answers_tail) {
    left.psn = state.answers[state.answers_head % rd_atomic_max].psn;
    left.nak = nak_code::dropped;
    keep_orphan(*qp.slot, left);
    return;
  }
  if (state.ack_due) {
    left.psn = state.ack_psn;
    keep_orphan(*qp.slot, left);
  }
  if (state.nak_due != nak_code::none) {
    left.psn = state.nak_psn;
    left.nak = state.nak_due;
    keep_orphan(*qp.slot, left);
  }
}

void answer_before_request(queue_pair& qp) noexcept {
  const std::lock_guard lock{qp.slot->receive};
  const responder_state& state = qp.responder;
  if (state.route != nullptr && state.route_generation == state.route->generation())
    send_due(qp, *state.route);
}

bool send_answers(node& local_node, link& to, std::uint32_t local_qpn) noexcept {
  qp_slot* slot = local_node.find(local_qpn);
  if (slot == nullptr) return true;
  std::lock_guard lock{slot->receive};
  if (!send_orphans(*slot, to, local_qpn)) return false;
  queue_pair* qp = slot->qp;
  if (qp == nullptr || qp->responder.route != &to ||
      qp->responder.route_generation != to.generation())
    return true;
  return send_due(*qp, to);
}

}  // namespace softverbs
