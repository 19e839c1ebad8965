#include "call_frame.hpp"

#include <cordma/base/error.hpp>
#include <cordma/base/little_endian.hpp>

#include <cinttypes>
#include <cstdio>

namespace cordma::call_protocol {
namespace {

// Where the fields are.
namespace at {
constexpr std::size_t version = 0, kind = 1, bulk = 2, value = 4, call = 8, method = 16;
}  // namespace at

using little_endian::get;
using little_endian::put;

[[noreturn]] void fail(const char* what, std::uint64_t value) {
  char text[120];
  std::snprintf(text, sizeof text, "%s 0x%" PRIx64, what, value);
  throw error{{.code = errc::bad_frame, .call = "rpc", .detail = text}};
}

}  // namespace

std::array<std::byte, header_bytes> encode(const header& h) noexcept {
  std::array<std::byte, header_bytes> out;
  out[at::version] = std::byte{h.version};
  out[at::kind] = std::byte(h.kind);
  put(&out[at::bulk], h.bulk);
  put(&out[at::value], h.value);
  put(&out[at::call], h.call);
  put(&out[at::method], h.method);
  return out;
}

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

std::uint64_t call_in(std::span<const std::byte> in) noexcept {
  return get<std::uint64_t>(&in[at::call]);
}

}  // namespace cordma::call_protocol
