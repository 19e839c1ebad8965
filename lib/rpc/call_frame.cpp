#include "call_frame.hpp"

namespace cordma::call_protocol {
namespace {

[[noreturn]] void fail(const char* what, std::uint64_t value) {
  message_protocol::throw_bad_value(what, value, "rpc");
}

}  // namespace

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
  if (h.bulk > (is_request ? source | sink : 0)) fail("bulk", h.bulk);
  if (!is_request && h.kind != kind::failure && h.value != 0) fail("value", h.value);
  if (!is_request && h.method != 0) fail("method", h.method);
  if (bytes.size() < head_bytes(h.bulk))
    fail("a request that lends is not as short as", bytes.size());
  for (std::size_t at = header_bytes; at < head_bytes(h.bulk); at += message_protocol::loan_bytes)
    message_protocol::check_loan(&bytes[at], "rpc");
}

loan_terms terms_of(std::span<const std::byte> request, bulk which) noexcept {
  const header h = read(request.data());
  const bool is_second = which == sink && (h.bulk & source) != 0;
  return message_protocol::decode_loan(
      &request[header_bytes + (is_second ? message_protocol::loan_bytes : 0)]);
}

}  // namespace cordma::call_protocol
