#pragma once

#include "wire/step.hpp"

#include <cstddef>
#include <cstdint>

namespace softverbs {

/// The kinds of frames: requests, then answers.
enum class frame_kind : std::uint8_t {
  lost,  ///< a frame that a simulation has lost
  send = 1,
  write,
  read,
  compare_swap,
  fetch_add,
  atomic_write,   ///< `operand[0]` is the word; the answer is an `atomic_response`
  ack = 16,       ///< all requests up to and including `psn` are done
  nak,            ///< `nak` says why `psn` failed; except for `dropped`, all earlier ones are done
  read_response,  ///< `offset` bytes of `message_bytes` came before
  atomic_response,  ///< `operand[0]` is the previous value
};

[[nodiscard]] constexpr bool is_atomic(frame_kind kind) noexcept {
  return kind >= frame_kind::compare_swap && kind <= frame_kind::atomic_write;
}

enum class service : std::uint8_t {
  rc,  ///< XRC, too, whose requests name a receive queue: qp/xrc.hpp
  uc,
  ud,
  relay,  ///< a target of XRC passes it on to another process: qp/relay.hpp
};

enum class nak_code : std::uint8_t {
  none,
  rnr,               ///< `immediate` is the 5-bit timer code
  dropped,           ///< hardware would be silent: see "Reliability" in docs/design.md
  invalid_request,   ///< REM_INV_REQ_ERR
  remote_access,     ///< REM_ACCESS_ERR
  remote_operation,  ///< REM_OP_ERR
};

namespace frame_flag {
inline constexpr std::uint8_t first = 1;       ///< first segment of its message
inline constexpr std::uint8_t last = 2;        ///< last segment of its message
inline constexpr std::uint8_t immediate = 4;   ///< `immediate` is data, in the user's byte order
inline constexpr std::uint8_t invalidate = 8;  ///< `immediate` is the rkey to invalidate
inline constexpr std::uint8_t solicited = 16;
}  // namespace frame_flag

/// The header before each payload, on a ring and on TCP; little-endian (asserted in ring.cpp).
struct frame_header {
  std::uint32_t payload_bytes;  ///< the bytes after this header, <= segment_bytes_max
  frame_kind kind;
  std::uint8_t flags;  ///< frame_flag
  service transport;
  union {
    nak_code nak;            ///< answers
    std::uint8_t hop_limit;  ///< UD: for the GRH; 0: there is none
  };
  std::uint32_t source_qpn;
  std::uint32_t destination_qpn;
  std::uint32_t psn;  ///< PSN of the message's first packet
  std::uint32_t
      immediate;  ///< immediate data, or the rkey to invalidate; in an RNR NAK the timer code
  union {
    std::uint32_t rkey;
    /// UD: 4 bits of service level on an InfiniBand port; for the GRH 8 bits of traffic class and
    /// 20 of flow label
    std::uint32_t class_and_flow;
  };
  union {
    std::uint32_t qkey;   ///< UD
    std::uint32_t epoch;  ///< RC: of the requester's connection; its answers repeat it
  };
  std::uint64_t remote_address;  ///< where the *message* starts in the responder's memory
  std::uint32_t message_bytes;   ///< length of the whole message
  std::uint32_t offset;          ///< offset of this segment in it
  union {
    std::uint64_t operand[2];     ///< compare or add, swap; the answer's previous value
    std::uint8_t source_gid[16];  ///< UD: for the GRH
  };
};
static_assert(sizeof(frame_header) == 64);
inline constexpr unsigned service_level_shift = 28;  ///< position in class_and_flow

inline constexpr std::size_t frame_align = 64;
inline constexpr std::size_t segment_bytes_max = bound(32 * 1024, 512);
inline constexpr std::uint32_t psn_mask = 0xffffff;
inline constexpr std::uint32_t qpn_max = 0xffffff;
/// The destination of frames that are for no queue pair: of datagrams to a group, and of relayed
/// messages.
inline constexpr std::uint32_t no_qpn = 0xffffff;

}  // namespace softverbs
