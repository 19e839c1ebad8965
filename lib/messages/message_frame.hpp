#pragma once

#include "agent/inline_grant.hpp"
#include "base/little_endian.hpp"

#include <cordma/base/error.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma::message_protocol {

/// The frames of a message stream, on the data queue pair: docs/rpc-protocol.md has the bytes. Pure
/// functions.

inline constexpr std::size_t header_bytes = 8;
inline constexpr std::size_t frame_bytes_max = 40;  ///< limit of kinds but data and control
/// Credits that messages leave to other frames. Without them, two sides whose programs take no
/// messages could not even tell credits.
inline constexpr std::uint32_t credits_reserved = 4;
inline constexpr std::uint32_t credits_min = 8;
inline constexpr std::uint32_t credits_max = 1u << 20;  ///< that a side can be granted
/// Frames are counted from here: near the wrap at 2^32, so that no bug can hide behind it.
inline constexpr std::uint32_t count_first = std::uint32_t(-200);
// Limits of a side's terms.
inline constexpr std::size_t buffer_bytes_min = 64;
inline constexpr std::size_t buffer_bytes_max = std::size_t{1} << 20;
inline constexpr std::size_t message_bytes_max = std::size_t{1} << 30;

// A large message has a `tag`: the sender's number of it.
enum class kind : std::uint8_t {
  data = 1,      ///< a message: its bytes follow the header
  credit = 2,    ///< only the credits that every frame carries
  announce = 3,  ///< sender: tag, loan: a message that is larger than a buffer, lent for reading
  taken = 4,     ///< receiver: tag, status: once for each, it is over; 0: the receiver has it
  withdraw = 5,  ///< sender: tag; answered by `taken`
  control = 6,   ///< a frame of RPC besides its messages: its bytes follow the header
  grant = 7,     ///< receiver: messages; so many frames may be in flight from now on
  shrink = 8,    ///< receiver: messages; asks the sender to keep to so many
  shrunk = 9,    ///< sender: messages; answers `shrink`: it keeps to so many
};

struct frame {
  message_protocol::kind kind = kind::credit;
  std::uint32_t taken = 0;  ///< frames of the other side that this side has taken, modulo 2^32
  std::uint64_t tag = 0;
  loan_terms loan{};
  std::uint32_t status = 0;  ///< an `errc`
  std::uint32_t messages = 0;
};

/// The failure of a peer that breaks the protocol of `call`: errc::bad_frame.
failure bad_frame(const char* what, const char* call = "message_stream") noexcept;
[[noreturn]] void throw_bad_frame(const char* what, const char* call = "message_stream");
[[noreturn]] void throw_bad_value(const char* what, std::uint64_t value,
                                  const char* call = "message_stream");

inline constexpr std::size_t loan_bytes = 24;  ///< length of a loan's terms
void encode_loan(const loan_terms& t, std::byte* out) noexcept;
loan_terms decode_loan(const std::byte* in) noexcept;
/// \errors errc::bad_frame: a field has a value that no loan can have.
void check_loan(const std::byte* in, const char* call);

/// True for frames that say how many frames may be in flight.
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

/// Writes the `header_bytes` that every frame begins with.
inline void encode_header(const frame& f, std::byte* out) noexcept {
  little_endian::put(out, std::uint32_t(f.kind));
  little_endian::put(out + 4, f.taken);
}
/// The first `size_of(f.kind)` bytes of the result are the frame.
std::array<std::byte, frame_bytes_max> encode(const frame& f) noexcept;

/// Reads a frame; of data and control only the header. \errors errc::bad_frame: not a frame, or a
///   field that its kind cannot have; the detail names the field and its value.
frame decode(std::span<const std::byte> bytes);
/// True for a message: then `taken_in` is all that there is to decode.
inline bool is_data(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= header_bytes &&
         little_endian::get<std::uint32_t>(bytes.data()) == std::uint32_t(kind::data);
}
inline std::uint32_t taken_in(std::span<const std::byte> bytes) noexcept {
  return little_endian::get<std::uint32_t>(bytes.data() + 4);
}

}  // namespace cordma::message_protocol
