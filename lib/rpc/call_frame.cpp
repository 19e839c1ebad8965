#include "call_frame.hpp"

#include <cordma/base/error.hpp>

#include <cinttypes>
#include <cstdio>

namespace cordma::call_protocol {
namespace {

[[noreturn]] void fail(const char* what, std::uint64_t value) {
  char text[120];
  std::snprintf(text, sizeof text, "%s 0x%" PRIx64, what, value);
  throw error{{.code = errc::bad_frame, .call = "rpc", .detail = text}};
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
  for (std::size_t at = header_bytes; at < head_bytes(h.bulk); at += loan_protocol::terms_bytes)
    if (const auto wrong = loan_protocol::check(&bytes[at])) fail(wrong->name, wrong->value);
}

loan_terms terms_of(std::span<const std::byte> request, bulk which) noexcept {
  const header h = read(request.data());
  const bool is_second = which == sink && (h.bulk & source) != 0;
  return loan_protocol::decode(
      &request[header_bytes + (is_second ? loan_protocol::terms_bytes : 0)]);
}

}  // namespace cordma::call_protocol
