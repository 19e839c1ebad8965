#pragma once

#include <cordma/agent/agent_options.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma::agent_protocol {

/// The frames between two agents: docs/agent-protocol.md has the bytes. Pure functions.

inline constexpr std::uint8_t version = 3;
inline constexpr std::size_t frame_bytes = 64;
/// Receives that each side keeps posted: as many frames may be under way to it.
inline constexpr std::uint32_t credits = 32;
/// Questions that a side may have open: their answers then always find credits.
inline constexpr std::uint32_t questions_max = 15;

// An owner's lease has a number of the owner's, and a `tag` of the holder's.
enum class kind : std::uint8_t {
  credit = 1,     ///< only the credits that every frame carries
  request = 2,    ///< holder asks: tag, length, access, duration, alignment
  granted = 3,    ///< owner answers: tag, lease, length, address, rkey, access, duration, isolation
  refused = 4,    ///< answer to any question: tag, status, and a limit as length
  offer = 5,      ///< owner: as granted, but for the tag
  accept = 6,     ///< holder, to an offer: tag, lease
  renew = 7,      ///< holder asks: tag, lease, duration
  renewed = 8,    ///< owner answers: tag, duration
  give_back = 9,  ///< holder: lease, status: why, if not because it wants to
  hand_over = 10,    ///< holder asks: tag, lease
  handed_over = 11,  ///< owner answers: tag
  revoke = 12,       ///< owner: lease, tag (0: the offer was not accepted)
  note = 13,         ///< message of the layer above: tag, lease, length
  bytes = 14,        ///< bytes of the bootstrap: payload; status: how many, or `end_frame`'s
  proof = 15,        ///< proof of a side's identity and of its bootstrap: payload
};
constexpr bool has_payload(kind k) noexcept { return k == kind::bytes || k == kind::proof; }

struct frame {
  agent_protocol::kind kind = kind::credit;
  std::uint32_t taken = 0;  ///< Frames of the receiver's that the sender has taken, modulo 2^32.
  std::uint64_t tag = 0;    ///< With lease and length, in a note: any three words.
  std::uint64_t lease = 0;
  std::uint64_t length = 0;
  std::uint64_t address = 0;
  std::uint32_t rkey = 0;
  verbs::access access = verbs::access::none;
  std::chrono::microseconds duration{};
  std::uint32_t status = 0;  ///< an `errc`
  std::uint8_t isolation = 0;
  std::uint8_t alignment_log2 = 0;
};

/// The bytes of a frame that has any; they lie where tag, lease, length and address are.
using payload = std::array<std::byte, 32>;
/// Returns a frame of at most 32 bytes of the bootstrap.
frame bytes_frame(std::span<const std::byte> content) noexcept;
/// No more bytes of the bootstrap come.
inline constexpr frame end_frame{.kind = kind::bytes, .status = sizeof(payload) + 1};
frame proof_frame(const payload& proof) noexcept;
payload payload_of(const frame& f) noexcept;

using frame_bytes_t = std::array<std::byte, frame_bytes>;

frame_bytes_t encode(const frame& f) noexcept;
/// \errors errc::bad_frame: not a frame of this version, or a field that its kind cannot have; the
///   detail names it and its value.
frame decode(std::span<const std::byte> bytes);

/// True if the frame answers a question of its receiver's.
constexpr bool is_answer(kind k) noexcept {
  return k == kind::granted || k == kind::refused || k == kind::renewed || k == kind::handed_over;
}
constexpr bool is_question(kind k) noexcept {
  return k == kind::request || k == kind::renew || k == kind::hand_over;
}

}  // namespace cordma::agent_protocol
