#include "call_frame.hpp"

#include <cordma/base/error.hpp>

#include <cinttypes>
#include <cstdio>

namespace cordma::call_protocol {
namespace {

using little_endian::get;

[[noreturn]] void fail(const char* what, std::uint64_t value) {
  char text[120];
  std::snprintf(text, sizeof text, "%s 0x%" PRIx64, what, value);
  throw error{{.code = errc::bad_frame, .call = "rpc", .detail = text}};
}

}  // namespace

header decode(std::span<const std::byte> in, bool is_control) {
  if (in.size() < header_bytes || (is_control && in.size() != header_bytes))
    fail("the size of a call's header is not", in.size());
  const auto number = std::uint8_t(in[at::kind]);
  const header h{.version = std::uint8_t(in[at::version]),
                 .kind = kind{number},
                 .bulk = get<std::uint16_t>(&in[at::bulk]),
                 .value = get<std::uint32_t>(&in[at::value]),
                 .call = call_in(in),
                 .method = get<std::uint64_t>(&in[at::method])};
  if (h.call >= call_limit) fail("call", h.call);
  if (h.version != version) return h;  // Whatever else is in it.
  const auto first = unsigned(is_control ? kind::cancel : kind::request);
  const auto last = unsigned(is_control ? kind::want : kind::failure);
  if (number < first || number > last) fail("kind", number);
  const bool is_request = h.kind == kind::request;
  const bool is_want = h.kind == kind::want;
  if (is_want ? h.bulk != source && h.bulk != sink : h.bulk > (is_request ? source | sink : 0))
    fail("bulk", h.bulk);
  if (!is_request && h.kind != kind::failure && h.value != 0) fail("value", h.value);
  if (!is_request && h.method != 0) fail("method", h.method);
  return h;
}

}  // namespace cordma::call_protocol
