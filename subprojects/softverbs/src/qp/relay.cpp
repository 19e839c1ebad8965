#include "qp/relay.hpp"

#include <chrono>
#include <cstring>

namespace softverbs {
namespace {

constexpr std::chrono::microseconds room_check_time{50};

bool has_route(const relay& state) noexcept {
  return state.route != nullptr && state.route->generation() == state.route_generation;
}

/// Chooses the process of the queue for a new message. False: there is none.
bool choose_route(queue_pair& target, std::uint32_t number) noexcept {
  relay& state = *target.passed_on;
  const std::uint16_t slot = slot_of(number);
  if (state.slot != slot || !has_route(state)) {
    state.route = target.local_node->link_to({.host = {}, .slot = relay_slot(slot)});
    if (state.route != nullptr) state.route_generation = state.route->generation();
    state.slot = slot;
    state.epoch = 0;
  }
  if (state.epoch == 0) state.epoch = target.local_node->next_epoch();
  return state.route != nullptr;
}

frame_header relayed(const queue_pair& target, frame_header header, std::uint32_t number) noexcept {
  const xrc_domain_id& domain = target.domain_id;
  header.transport = service::relay;
  header.source_qpn = target.number();
  header.destination_qpn = no_qpn;
  header.epoch = target.passed_on->epoch;
  header.operand[0] = domain.inode;
  header.operand[1] = std::uint64_t{domain.device} << 32 | number;
  return header;
}

/// The answer to an initiator in this process.
frame_header answer_of(const queue_pair& target, frame_kind kind, std::uint32_t psn) noexcept {
  frame_header header{};
  header.kind = kind;
  header.source_qpn = target.number();
  header.destination_qpn = target.terms.peer_qpn;
  header.epoch = target.passed_on->initiator_epoch;
  header.psn = psn;
  return header;
}

std::optional<frame_header> acknowledge_to(queue_pair& target, std::uint32_t psn) noexcept {
  if (target.is_peer_local) return answer_of(target, frame_kind::ack, psn);
  target.responder.ack_due = true;
  target.responder.ack_psn = psn;
  send_owed(target);
  return std::nullopt;
}

/// Refuses the message `psn`, from which on the initiator has to send again.
std::optional<frame_header> refuse_from(queue_pair& target, std::uint32_t psn,
                                        nak_code why) noexcept {
  expected_message& expected = target.slot->expected;
  expected.psn = psn;
  expected.in_message = false;
  target.passed_on->drop();
  if (why >= nak_code::invalid_request) end_connection(target, why);
  if (!target.is_peer_local) {
    expected.waits_for_resend = true;
    target.responder.nak_due = why;
    target.responder.nak_psn = psn;
    send_owed(target);
    return std::nullopt;
  }
  raise_due(target);
  frame_header header = answer_of(target, frame_kind::nak, psn);
  header.nak = why;
  header.immediate = target.attr.min_rnr_timer;
  return header;
}

}  // namespace

reply pass_on(queue_pair& target, const incoming& piece, std::uint32_t number) noexcept {
  const frame_header& header = piece.header;
  relay& state = *target.passed_on;
  const bool writes = header.kind == frame_kind::write;
  if ((!writes && header.kind != frame_kind::send) ||
      (writes && (unsigned{target.terms.access} & IBV_ACCESS_REMOTE_WRITE) == 0))
    return {.nak = nak_code::invalid_request};
  const bool is_first = (header.flags & frame_flag::first) != 0;
  // A later piece may not name another queue than the first one.
  if (number != target.responder.queue) return {.nak = nak_code::invalid_request};
  // on_relay_down() needs the route of the messages that have no answer.
  if (is_first && !state.is_idle() && !has_route(state)) return {.is_held = true};
  if (is_first) {
    // An initiator waits for its answers before it names a queue of another process.
    if (!state.is_idle() && state.slot != slot_of(number)) return {.nak = nak_code::dropped};
    if (!choose_route(target, number)) return {.nak = nak_code::invalid_request};
    state.initiator_epoch = header.epoch;
  } else if (!has_route(state) || state.epoch == 0) {
    return {.nak = nak_code::dropped};
  }
  const bool is_last = (header.flags & frame_flag::last) != 0;
  if (is_last && state.is_full()) return {.is_held = true};
  // An initiator in this process is kicked when there is room; a link asks again by itself.
  const std::uint32_t waiter = piece.from == nullptr ? header.source_qpn : 0;
  link::frame_room room = state.route->reserve(relayed(target, header, number), waiter);
  if (room.result == sent::down && state.is_idle() && is_first) {
    state.route = nullptr;  // A process of that slot may have come since.
    if (!choose_route(target, number)) return {.nak = nak_code::invalid_request};
    room = state.route->reserve(relayed(target, header, number), waiter);
  }
  // The process has gone. If it owes answers, on_relay_down() refuses them first.
  if (room.result == sent::down && state.is_idle()) return {.nak = nak_code::invalid_request};
  if (room.result != sent::yes) return {.is_held = true};
  if (header.payload_bytes != 0 && !guarded_copy(room.payload, piece.bytes, header.payload_bytes)) {
    state.route->cancel();
    return {.source_fault = true};
  }
  state.route->commit();
  if (is_last) state.add(header.psn);
  return {.is_passed_on = true};
}

std::optional<frame_header> on_relay_answer(queue_pair& target, const link& from,
                                            const frame_header& header) noexcept {
  relay& state = *target.passed_on;
  // Answers to what was sent before a NAK count no more.
  if (state.route != &from || state.route_generation != from.generation() ||
      header.epoch != state.epoch || state.epoch == 0)
    return std::nullopt;
  if (header.kind == frame_kind::ack) {
    const auto ended = state.end_to(header.psn);
    return ended ? acknowledge_to(target, *ended) : std::nullopt;
  }
  if (header.kind != frame_kind::nak || header.nak == nak_code::none) return std::nullopt;
  const expected_message& expected = target.slot->expected;
  const bool is_begun = expected.in_message && expected.psn == header.psn;
  if (!state.has(header.psn) && !is_begun) return std::nullopt;
  return refuse_from(target, header.psn, header.nak);
}

std::optional<frame_header> on_relay_down(queue_pair& target, const link& dead,
                                          std::uint32_t generation) noexcept {
  relay& state = *target.passed_on;
  if (state.route != &dead || state.route_generation != generation) return std::nullopt;
  state.route = nullptr;
  if (state.is_idle()) return std::nullopt;
  // The process of the queue has gone, and the queue with it.
  return refuse_from(target, state.oldest(), nak_code::invalid_request);
}

void send_owed(queue_pair& target) noexcept {
  responder_state& state = target.responder;
  if (state.route == nullptr || state.route_generation != state.route->generation()) return;
  if (!send_due(target, *state.route))
    target.local_node->wake_at(target.number(), clock::now() + room_check_time);
}

void check_target(queue_pair& initiator) noexcept {
  if (initiator.sends.completed == initiator.sends.next) return;
  qp_slot* const slot = initiator.local_node->find(initiator.terms.peer_qpn);
  if (slot != nullptr) {
    const std::lock_guard lock{slot->receive};
    const queue_pair* const target = slot->qp;
    if (target != nullptr && target->passed_on &&
        target->passed_on->initiator_epoch == initiator.requester.epoch)
      return;
  }
  rewind(initiator);
  refused(initiator, nak_code::dropped, 0);
}

}  // namespace softverbs
