#include "call_frame.hpp"

#include <algorithm>

namespace cordma::call_protocol {
namespace {

[[noreturn]] void fail(const char* what, std::uint64_t value) {
  message_protocol::throw_bad_value(what, value, "rpc");
}

// Where the fields of a trace context are.
constexpr std::size_t flags_at = 0, trace_id_at = 8, span_id_at = 24;

void check_context(const std::byte* in) {
  const auto flags = little_endian::get<std::uint64_t>(in + flags_at);
  if (flags > UINT8_MAX) fail("the flags of a trace context", flags);
  const auto is_zero = [in](std::size_t first, std::size_t last) {
    return std::all_of(in + first, in + last, [](std::byte b) { return b == std::byte{0}; });
  };
  if (is_zero(trace_id_at, span_id_at)) fail("the trace of a trace context", 0);
  if (is_zero(span_id_at, trace_bytes)) fail("the span of a trace context", 0);
}

}  // namespace

errc code_of(status s) noexcept {
  switch (s) {
    case status::unknown_method: return errc::unknown_method;
    case status::unknown_version: return errc::incompatible_peer;
    case status::bad_request: return errc::bad_message;
    case status::reply_too_large: return errc::wrong_length;
    case status::shutting_down: return errc::shutting_down;
    case status::stopped: return errc::timed_out;
    case status::out_of_memory:
    case status::handler_failed: break;
  }
  return errc::handler_failed;
}

void encode(const rpc::trace_context& context, std::byte* out) noexcept {
  little_endian::put(out + flags_at, std::uint64_t{context.flags});
  std::ranges::copy(context.trace_id, out + trace_id_at);
  std::ranges::copy(context.span_id, out + span_id_at);
}

rpc::trace_context context_of(std::span<const std::byte> request) noexcept {
  const std::byte* const in = request.data() + header_bytes;
  rpc::trace_context read;
  read.flags = std::uint8_t(in[flags_at]);
  std::copy_n(in + trace_id_at, read.trace_id.size(), read.trace_id.begin());
  std::copy_n(in + span_id_at, read.span_id.size(), read.span_id.begin());
  return read;
}

void check(std::span<const std::byte> bytes, bool is_control) {
  if (bytes.size() < header_bytes || (is_control && bytes.size() != header_bytes))
    fail("the size of a call's header is not", bytes.size());
  const header h = read(bytes.data());
  if (h.call >= call_limit) fail("call", h.call);
  if (h.version != version) return;  // Other fields may be anything.
  const auto first = is_control ? kind::cancel : kind::request;
  const auto last = is_control ? kind::returned : kind::failure;
  if (h.kind < first || h.kind > last) fail("kind", unsigned(h.kind));
  const bool is_request = h.kind == kind::request;
  if (h.bulk > (is_request ? loans | trace : 0)) fail("bulk", h.bulk);
  if (!is_request && h.kind != kind::failure && h.value != 0) fail("value", h.value);
  if (!is_request && h.method != 0) fail("method", h.method);
  if (bytes.size() < head_bytes(h.bulk))
    fail("a request with such parts is not as short as", bytes.size());
  if ((h.bulk & trace) != 0) check_context(bytes.data() + header_bytes);
  for (std::size_t at = loans_at(h.bulk); at < head_bytes(h.bulk);
       at += message_protocol::loan_bytes)
    message_protocol::check_loan(&bytes[at], "rpc");
}

loan_terms terms_of(std::span<const std::byte> request, bulk which) noexcept {
  const header h = read(request.data());
  const bool is_second = which == sink && (h.bulk & source) != 0;
  return message_protocol::decode_loan(
      &request[loans_at(h.bulk) + (is_second ? message_protocol::loan_bytes : 0)]);
}

}  // namespace cordma::call_protocol
