#pragma once

#include "wire/frame.hpp"

#include <cstdint>

// What link and node ask of the queue pairs; defined in qp/.

namespace softverbs {

class link;
class node;

/// Go on with this QP's send queue, or flush it: it was kicked, or its deadline has come. Takes the
/// QP's locks.
void run(node&, std::uint32_t qpn) noexcept;

/// A request from another process, `payload` still in the shared ring: its bytes may change while
/// they are read. `header` is our copy; nothing in it was checked but payload_bytes <=
/// segment_bytes_max. False: not taken, since its requester must be told something that no QP can
/// keep and that there is no room for; it comes again. Thread: holds `from`'s rx lock.
[[nodiscard]] bool on_request(node&, link& from, const frame_header& header,
                              const std::byte* payload) noexcept;

/// An answer, likewise. False: it answers nothing that is in flight, or lies; the link is then
/// closed.
bool on_answer(node&, link& from, const frame_header& header, const std::byte* payload) noexcept;

/// Sends the acks and answers that this QP owes, until the ring is full or the quantum ends. False:
/// some are left, so call again.
bool send_answers(node&, link& to, std::uint32_t local_qpn) noexcept;

/// A link that we opened died, or could not be opened: what this QP had in flight on it was not
/// taken. Called for every live QP. Thread: holds no lock.
void on_link_down(node&, const link& dead, std::uint32_t generation,
                  std::uint32_t local_qpn) noexcept;

}  // namespace softverbs
