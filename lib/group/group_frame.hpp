#pragma once

#include "agent/inline_grant.hpp"
#include "collective_call.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

/// The frames that two ranks exchange, as messages of a `message_channel`. Pure functions.
/// docs/collectives.md has the bytes.
namespace cordma::group_protocol {

inline constexpr std::size_t header_bytes = 48;
inline constexpr std::size_t loan_bytes = 24;
/// The number of the operation to which messages by tag belong.
inline constexpr std::uint64_t tagged_operation = ~std::uint64_t{0};

enum class kind : std::uint8_t {
  eager = 1,     ///< a message: its bytes follow
  offer = 2,     ///< receiver: memory for a large message, lent for writing
  written = 3,   ///< sender: the offered memory has the message
  released = 4,  ///< sender: the offered memory will not be used
  announce = 5,  ///< sender: a message by tag, which waits for an offer
  retract = 6,   ///< sender: the announced message will not come
  credit = 7,    ///< receiver: `credits` eager frames of the group were consumed
  ping = 8,      ///< asks for a `pong`
  pong = 9,
  dead = 10,      ///< the rank `step` of the whole is cut off: a text follows
  broken = 11,    ///< the group has failed, by the rank `step` of the whole: a text follows
  left = 12,      ///< the sender has left the group
  ready = 13,     ///< to the rank that decides who survives: the sender waits for a decision
  decision = 14,  ///< the ranks that survive: a bitmap of the group's ranks follows
};

/// The call of an operation that all ranks must agree on.
struct signature {
  detail::collective_kind kind = detail::collective_kind::barrier;
  std::uint16_t reduction = 0;
  std::uint32_t root = 0;  ///< A message by tag has its tag here.
  std::uint64_t bytes = 0;
  friend bool operator==(const signature&, const signature&) = default;
};

struct frame {
  group_protocol::kind kind = kind::eager;
  signature call{};
  std::uint64_t group = 0;
  std::uint64_t operation = 0;
  std::uint32_t step = 0;     ///< message number in the operation, or a rank
  std::uint32_t credits = 0;  ///< eager frames consumed since the last frame that told of some
  std::uint64_t length = 0;   ///< length of the message, in bytes
  loan_terms loan{};          ///< terms of an `offer`
};

/// Returns the number of bytes that `encode` writes.
constexpr std::size_t size_of(kind k) noexcept {
  return k == kind::offer ? header_bytes + loan_bytes : header_bytes;
}
void encode(const frame& f, std::byte* out) noexcept;
/// Reads the head of a frame; `size_of` its kind says where the rest begins.
/// \errors errc::bad_frame: not a frame, or a field that its kind cannot have.
frame decode(std::span<const std::byte> bytes);

}  // namespace cordma::group_protocol
