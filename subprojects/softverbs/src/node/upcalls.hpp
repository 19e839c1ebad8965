#pragma once

#include "wire/frame.hpp"

#include <cstdint>

// The functions of the queue pairs that link and node call; defined in qp/.

namespace softverbs {

class link;
class node;

/// Continues or flushes the send queue of a QP that was kicked or whose deadline has come. Takes
/// the locks of the QP.
void run(node&, std::uint32_t qpn) noexcept;

/// Takes a request from another process. `payload` is in the shared ring: its bytes may change
/// while they are read. `header` is a copy; only payload_bytes <= segment_bytes_max was checked.
/// False: the request was not taken, because its answer has no room and no QP can keep that. The
/// link passes the request again. \thread holds the rx lock of `from`.
[[nodiscard]] bool on_request(node&, link& from, const frame_header& header,
                              const std::byte* payload) noexcept;

/// Takes an answer from another process, like on_request(). False: the answer is invalid; the link
/// is then closed.
bool on_answer(node&, link& from, const frame_header& header, const std::byte* payload) noexcept;

/// Sends the acks and answers that this QP owes, until the ring is full or the quantum ends. False:
/// some are left, so call again.
bool send_answers(node&, link& to, std::uint32_t local_qpn) noexcept;

/// Handles the end of a link that we opened: the requests of this QP in flight on it were not
/// taken. Called for each QP number in use. \thread holds no lock.
void on_link_down(node&, const link& dead, std::uint32_t generation,
                  std::uint32_t local_qpn) noexcept;

/// Flushes a receive that an unfinished message of XRC has taken, at the end of the link on which
/// another process passed it on. Like on_link_down().
void on_relay_link_down(node&, const link& dead, std::uint32_t generation,
                        std::uint32_t local_qpn) noexcept;

}  // namespace softverbs
