#pragma once

#include "base/little_endian.hpp"
#include "messages/message_frame.hpp"

#include <cordma/base/error.hpp>
#include <cordma/rpc/method.hpp>

#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma::call_protocol {

/// The frames of RPC: docs/rpc-protocol.md has the bytes. Pure functions.

inline constexpr std::size_t header_bytes = 24;
inline constexpr std::uint8_t version = 1;
/// Bytes of a failure's text; a longer one is cut off.
inline constexpr std::size_t text_bytes_max = 240;
/// Calls have numbers below this.
inline constexpr std::uint64_t call_limit = std::uint64_t{1} << 62;
/// Deadlines are in microseconds. This one stands for none, and for any above 71 minutes.
inline constexpr std::uint32_t no_deadline = UINT32_MAX;

enum class kind : std::uint8_t {
  // Messages.
  request = 1,  ///< client: method, deadline, its parts; they and the request follow
  reply = 2,    ///< server: the reply follows
  failure = 3,  ///< server: status; a text follows
  // Control.
  cancel = 4,    ///< client: the call is given up, and what it lent must come back
  returned = 5,  ///< server: what the call lent is not used any more; an answer implies it
};

enum class status : std::uint32_t {
  unknown_method = 1,
  unknown_version = 2,
  bad_request = 3,      ///< does not fit its type
  handler_failed = 4,   ///< the handler threw, or its reply could not be sent; the text says what
  reply_too_large = 5,  ///< for the client
  shutting_down = 6,    ///< the call has not run
  stopped = 7,          ///< the deadline came, or the client stopped the call
  out_of_memory = 8,
};

/// The code of the caller's failure.
errc code_of(status s) noexcept;

/// Parts of a request that precede its value: memory of the client that the call lends, and the
/// context of the client's span.
enum bulk : std::uint16_t { no_bulk = 0, source = 1, sink = 2, trace = 4 };
/// The parts that lend memory.
inline constexpr std::uint16_t loans = source | sink;
inline constexpr std::size_t trace_bytes = 32;

// Where the fields are.
namespace at {
inline constexpr std::size_t version = 0, kind = 1, bulk = 2, value = 4, call = 8, method = 16;
}  // namespace at

struct header {
  std::uint8_t version = call_protocol::version;
  call_protocol::kind kind = kind::request;
  std::uint16_t bulk = no_bulk;  ///< request: its parts
  std::uint32_t value = 0;       ///< request: deadline; failure: status
  std::uint64_t call = 0;        ///< the client's number of the call
  std::uint64_t method = 0;      ///< request
};

/// False: only the version and the call mean something.
inline bool is_ours(const header& h) noexcept { return h.version == version; }

/// Writes `header_bytes` to where they are sent from, in whole words: a copy soon after would stall
/// on partial writes.
[[gnu::always_inline]] inline void encode(const header& h, std::byte* out) noexcept {
  little_endian::put(out + at::version, std::uint64_t{h.value} << 32 | std::uint32_t{h.bulk} << 16 |
                                            std::uint32_t(h.kind) << 8 | h.version);
  little_endian::put(out + at::call, h.call);
  little_endian::put(out + at::method, h.method);
}
/// Bytes before the terms of the loans: the header and the trace context, if there is one.
constexpr std::size_t loans_at(std::uint16_t parts) noexcept {
  return header_bytes + ((parts & trace) != 0 ? trace_bytes : 0);
}
/// Bytes before the request itself: the header and the parts.
constexpr std::size_t head_bytes(std::uint16_t parts) noexcept {
  return loans_at(parts) +
         message_protocol::loan_bytes * ((parts & source) + (parts & sink) / sink);
}

/// Writes `trace_bytes`. \param context  is not none.
void encode(const rpc::trace_context& context, std::byte* out) noexcept;
/// The trace context. \param request  was checked, and has one.
rpc::trace_context context_of(std::span<const std::byte> request) noexcept;

/// Terms of a loan. \param request  was checked, and lends `which`.
loan_terms terms_of(std::span<const std::byte> request, bulk which) noexcept;

/// The call of a message that has at least a header's length.
inline std::uint64_t call_in(std::span<const std::byte> bytes) noexcept {
  return little_endian::get<std::uint64_t>(&bytes[at::call]);
}

/// \errors as `decode`.
void check(std::span<const std::byte> bytes, bool is_control);

/// Reads `header_bytes`, without a check.
inline header read(const std::byte* in) noexcept {
  const auto first = little_endian::get<std::uint64_t>(in);
  return {.version = std::uint8_t(first),
          .kind = kind{std::uint8_t(first >> 8)},
          .bulk = std::uint16_t(first >> 16),
          .value = std::uint32_t(first >> 32),
          .call = little_endian::get<std::uint64_t>(in + at::call),
          .method = little_endian::get<std::uint64_t>(in + at::method)};
}

/// True for most messages: a valid request without other parts, or a valid reply.
inline bool is_plain(std::span<const std::byte> bytes) noexcept {
  if (bytes.size() < header_bytes || call_in(bytes) >= call_limit) return false;
  constexpr std::uint32_t request = version | unsigned(kind::request) << 8;
  constexpr std::uint64_t reply = version | unsigned(kind::reply) << 8;
  const auto first = little_endian::get<std::uint64_t>(bytes.data());
  return std::uint32_t(first) == request ||
         (first == reply && little_endian::get<std::uint64_t>(&bytes[at::method]) == 0);
}

/// The header of a message or, with `is_control`, of a control frame. Another version is no error.
/// \errors errc::bad_frame: shorter than its kind must be, or a field that its kind cannot have;
/// the
///   detail names the field and its value.
inline header decode(std::span<const std::byte> bytes, bool is_control) {
  if (is_control || !is_plain(bytes)) [[unlikely]]
    check(bytes, is_control);
  return read(bytes.data());
}

}  // namespace cordma::call_protocol
