#include "qp/data_path.hpp"
#include "qp/device_writes.hpp"

namespace softverbs {
namespace {

bool allows(const queue_pair& qp, unsigned access) noexcept {
  return (unsigned{qp.terms.access} & access) != 0;
}

/// Pins the memory of the whole message on behalf of the requester.
bool pin_remote(const queue_pair& qp, const frame_header& header, unsigned access,
                pinned& result) noexcept {
  return qp.local_node->keys().pin(header.rkey, qp.pd, header.destination_qpn, access,
                                   header.remote_address, header.message_bytes,
                                   result) == key_error::none;
}

constexpr reply nothing_done{};

}  // namespace

reply take_write(queue_pair& qp, const incoming& piece) noexcept {
  const frame_header& header = piece.header;
  if (!allows(qp, IBV_ACCESS_REMOTE_WRITE)) return {.nak = nak_code::invalid_request};
  pinned pin;
  // Each piece checks the whole range: the first piece fails if the last one would.
  if (header.message_bytes != 0 && !pin_remote(qp, header, IBV_ACCESS_REMOTE_WRITE, pin))
    return {.nak = nak_code::remote_access};
  // Hardware fetches the receive request with the last packet. An earlier fetch avoids that the
  // whole message is sent twice.
  const bool immediate = (header.flags & frame_flag::immediate) != 0;
  if (immediate && !fetch_receive(qp))
    return {.nak = nak_code::rnr, .rnr_timer = qp.attr.min_rnr_timer};
  if (header.payload_bytes != 0 && !store(*qp.local_node, pin.address() + header.offset,
                                          piece.bytes, header.payload_bytes, header.rkey)) {
    if (!readable(piece.bytes, header.payload_bytes)) return {.source_fault = true};
    return {.nak = nak_code::remote_access};
  }
  pin.release();
  return immediate && (header.flags & frame_flag::last) != 0 ? end_message(qp, piece)
                                                             : nothing_done;
}

reply take_read(queue_pair& qp, const incoming& piece) noexcept {
  const frame_header& header = piece.header;
  const responder_state& state = qp.responder;
  if (!allows(qp, IBV_ACCESS_REMOTE_READ) ||
      state.answers_tail - state.answers_head >= qp.terms.dest_rd_atomic_max)
    return {.nak = nak_code::invalid_request};
  pinned pin;
  if (header.message_bytes != 0 && !pin_remote(qp, header, IBV_ACCESS_REMOTE_READ, pin))
    return {.nak = nak_code::remote_access};
  if (piece.read_into == nullptr || header.payload_bytes == 0) return nothing_done;
  const std::byte* from = pin.address() + header.offset;
  if (store(*qp.local_node, piece.read_into, from, header.payload_bytes, no_rkey))
    return nothing_done;
  if (readable(from, header.payload_bytes)) return {.source_fault = true};
  return {.nak = nak_code::remote_access};
}

namespace {

/// Executes an atomic on a word that is pinned. False: the memory is unmapped.
bool execute_atomic(const frame_header& header, std::byte* word, std::uint64_t& previous) noexcept {
  switch (header.kind) {
    case frame_kind::compare_swap:
      return guarded_compare_swap(word, header.operand[0], header.operand[1], previous);
    case frame_kind::fetch_add: return guarded_fetch_add(word, header.operand[0], previous);
    default: return guarded_copy(word, &header.operand[0], sizeof header.operand[0]);
  }
}

}  // namespace

reply take_atomic(queue_pair& qp, const incoming& piece) noexcept {
  const frame_header& header = piece.header;
  const responder_state& state = qp.responder;
  constexpr std::uint64_t word = sizeof(std::uint64_t);
  const unsigned access = header.kind == frame_kind::atomic_write
                              ? unsigned{IBV_ACCESS_REMOTE_WRITE}
                              : unsigned{IBV_ACCESS_REMOTE_ATOMIC};
  if (!allows(qp, access) || header.message_bytes != word || header.remote_address % word != 0 ||
      state.answers_tail - state.answers_head >= qp.terms.dest_rd_atomic_max)
    return {.nak = nak_code::invalid_request};
  pinned pin;
  if (!pin_remote(qp, header, access, pin)) return {.nak = nak_code::remote_access};
  // An aligned address of a key may refer to unaligned memory.
  if (reinterpret_cast<std::uintptr_t>(pin.address()) % word != 0)
    return {.nak = nak_code::invalid_request};
  reply answer;
  if (!execute_atomic(header, pin.address(), answer.previous))
    return {.nak = nak_code::remote_access};
  note_written(*qp.local_node, pin.address(), word, header.rkey);
  return answer;
}

}  // namespace softverbs
