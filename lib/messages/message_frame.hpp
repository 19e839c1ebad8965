#pragma once

#include "base/little_endian.hpp"
#include "loan_frame.hpp"

#include <cordma/base/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma::message_protocol {

/// What the two ends of a message stream tell each other on the data queue pair:
/// docs/rpc-protocol.md has the bytes. Pure functions.

inline constexpr std::size_t header_bytes = 8;
inline constexpr std::size_t frame_bytes_max = 40;  ///< Of all but data and control.
/// Receives that are kept for frames which are not data: else two sides whose programs take no
/// messages could not even tell credits.
inline constexpr std::uint32_t credits_reserved = 4;
inline constexpr std::uint32_t credits_min = 8;
inline constexpr std::uint32_t credits_max = 1u << 20;  ///< That one is granted.
/// Frames are counted from here: near the wrap at 2^32, so that no bug can hide behind it.
inline constexpr std::uint32_t count_first = std::uint32_t(-200);
// What a side may take, by its terms.
inline constexpr std::size_t buffer_bytes_min = 64;
inline constexpr std::size_t buffer_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t message_bytes_max = std::size_t{1} << 30;

// A large message has a number, the `tag`, of its sender's.
enum class kind : std::uint8_t {
  data = 1,      ///< a message: its bytes follow the header
  credit = 2,    ///< nothing but the credits that every frame carries
  announce = 3,  ///< sender: tag, loan: a message that is larger than a buffer, lent for reading
  taken = 4,     ///< receiver: tag, status: it is over, and 0: the receiver has it. Once for each
  withdraw = 5,  ///< sender: tag; answered by `taken`
  control = 6,   ///< what RPC says beside its messages: its bytes follow the header
  grant = 7,     ///< receiver: messages; that many frames may be under way from now on
  shrink = 8,    ///< receiver: messages; the sender is asked to keep to so many
  shrunk = 9,    ///< sender: messages; it does
};

struct frame {
  message_protocol::kind kind = kind::credit;
  std::uint32_t taken = 0;  ///< Frames of the receiver's that the sender has taken, modulo 2^32.
  std::uint64_t tag = 0;
  loan_terms loan{};
  std::uint32_t status = 0;  ///< an `errc`
  std::uint32_t messages = 0;
};

/// Of a peer that does not keep to this: errc::bad_frame.
failure bad_frame(const char* what) noexcept;
[[noreturn]] void throw_bad_frame(const char* what);

/// Whether it says how many frames may be under way.
constexpr bool is_of_credit(kind k) noexcept { return k >= kind::grant; }

constexpr std::size_t size_of(kind k) noexcept {
  switch (k) {
    case kind::announce: return 40;
    case kind::taken: return 24;
    case kind::withdraw:
    case kind::grant:
    case kind::shrink:
    case kind::shrunk: return 16;
    case kind::data:
    case kind::control:
    case kind::credit: break;
  }
  return header_bytes;
}

/// What every frame begins with: `header_bytes`.
inline void encode_header(const frame& f, std::byte* out) noexcept {
  little_endian::put(out, std::uint32_t(f.kind));
  little_endian::put(out + 4, f.taken);
}
/// `size_of(f.kind)` bytes of what it gives.
std::array<std::byte, frame_bytes_max> encode(const frame& f) noexcept;

/// What follows the header of data and control is not looked at. \errors errc::bad_frame: not a
///   frame, or a field that its kind cannot have; the detail names it and its value.
frame decode(std::span<const std::byte> bytes);
/// Whether it is what most frames are: then its `taken` is all that there is to decode.
inline bool is_data(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= header_bytes &&
         little_endian::get<std::uint32_t>(bytes.data()) == std::uint32_t(kind::data);
}
inline std::uint32_t taken_in(std::span<const std::byte> bytes) noexcept {
  return little_endian::get<std::uint32_t>(bytes.data() + 4);
}

}  // namespace cordma::message_protocol
