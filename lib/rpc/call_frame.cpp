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
  if (h.version != version) return;  // Whatever else is in it.
  const auto first = is_control ? kind::cancel : kind::request;
  const auto last = is_control ? kind::want : kind::failure;
  if (h.kind < first || h.kind > last) fail("kind", unsigned(h.kind));
  const bool is_request = h.kind == kind::request;
  const bool is_want = h.kind == kind::want;
  if (is_want ? h.bulk != source && h.bulk != sink : h.bulk > (is_request ? source | sink : 0))
    fail("bulk", h.bulk);
  if (!is_request && h.kind != kind::failure && h.value != 0) fail("value", h.value);
  if (!is_request && h.method != 0) fail("method", h.method);
}

}  // namespace cordma::call_protocol
