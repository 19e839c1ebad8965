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

void check_terms(std::span<const std::byte> terms) {
  const auto address = little_endian::get<std::uint64_t>(terms.data());
  const auto length = little_endian::get<std::uint64_t>(&terms[8]);
  const auto last = little_endian::get<std::uint64_t>(&terms[16]);
  if (length == 0 || length - 1 > UINT64_MAX - address) fail("the length of a loan", length);
  const std::uint64_t level = last >> 32;
  if (level < std::uint64_t(isolation::shared_key) || level > std::uint64_t(isolation::exact))
    fail("the isolation of a loan", level);
}

}  // namespace

void check(std::span<const std::byte> bytes, bool is_control) {
  if (bytes.size() < header_bytes || (is_control && bytes.size() != header_bytes))
    fail("the size of a call's header is not", bytes.size());
  const header h = read(bytes.data());
  if (h.call >= call_limit) fail("call", h.call);
  if (h.version != version) return;  // Whatever else is in it.
  const auto first = is_control ? kind::cancel : kind::request;
  const auto last = is_control ? kind::returned : kind::failure;
  if (h.kind < first || h.kind > last) fail("kind", unsigned(h.kind));
  const bool is_request = h.kind == kind::request;
  if (h.bulk > (is_request ? source | sink : 0)) fail("bulk", h.bulk);
  if (!is_request && h.kind != kind::failure && h.value != 0) fail("value", h.value);
  if (!is_request && h.method != 0) fail("method", h.method);
  if (bytes.size() < head_bytes(h.bulk))
    fail("a request that lends is not as short as", bytes.size());
  for (std::size_t at = header_bytes; at < head_bytes(h.bulk); at += terms_bytes)
    check_terms(bytes.subspan(at, terms_bytes));
}

loan_terms terms_of(std::span<const std::byte> request, bulk which) noexcept {
  const header h = read(request.data());
  const bool is_second = which == sink && (h.bulk & source) != 0;
  const std::byte* const at = &request[header_bytes + (is_second ? terms_bytes : 0)];
  const auto last = little_endian::get<std::uint64_t>(at + 16);
  return {.address = little_endian::get<std::uint64_t>(at),
          .length = little_endian::get<std::uint64_t>(at + 8),
          .rkey = std::uint32_t(last),
          .isolation = isolation(last >> 32)};
}

}  // namespace cordma::call_protocol
