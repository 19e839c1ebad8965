#include "message_frame.hpp"

#include <cinttypes>
#include <concepts>
#include <cstdio>

namespace cordma::message_protocol {
namespace {

// Where the fields are.
namespace at {
constexpr std::size_t kind = 0, taken = 4, tag = 8, loan = 16, status = 16;
constexpr std::size_t messages = 8, after_messages = 12, after_status = 20;
}  // namespace at

using bytes = std::span<const std::byte>;
using little_endian::put;

template <std::unsigned_integral T>
T get(bytes in, std::size_t offset) noexcept {
  return little_endian::get<T>(in.data() + offset);
}

[[noreturn]] void fail(const char* what, std::uint64_t value) {
  char text[120];
  std::snprintf(text, sizeof text, "%s 0x%" PRIx64, what, value);
  throw error{{.code = errc::bad_frame, .call = "message_stream", .detail = text}};
}

void check_reserved(bytes in, std::size_t offset) {
  if (const auto rest = get<std::uint32_t>(in, offset); rest != 0) fail("reserved", rest);
}

}  // namespace

failure bad_frame(const char* what) noexcept {
  return {.code = errc::bad_frame, .call = "message_stream", .detail = what};
}

void throw_bad_frame(const char* what) { throw error{bad_frame(what)}; }

std::array<std::byte, frame_bytes_max> encode(const frame& f) noexcept {
  std::array<std::byte, frame_bytes_max> out{};
  encode_header(f, out.data());
  if (is_of_credit(f.kind)) {
    put(&out[at::messages], f.messages);
    return out;
  }
  put(&out[at::tag], f.tag);
  if (f.kind == kind::taken) put(&out[at::status], f.status);
  if (f.kind == kind::announce) loan_protocol::encode(f.loan, &out[at::loan]);
  return out;
}

frame decode(bytes in) {
  if (in.size() < header_bytes) fail("a frame is shorter than its header:", in.size());
  const auto number = std::uint8_t(in[at::kind]);
  if (number < unsigned(kind::data) || number > unsigned(kind::shrunk)) fail("kind", number);
  if (const auto reserved = get<std::uint32_t>(in, at::kind) >> 8; reserved != 0)
    fail("reserved", reserved);
  frame f{.kind = kind{number}, .taken = get<std::uint32_t>(in, at::taken)};
  if (f.kind == kind::data || f.kind == kind::control) return f;
  if (in.size() != size_of(f.kind)) fail("the size of a frame of that kind is not", in.size());
  if (f.kind == kind::credit) return f;
  if (is_of_credit(f.kind)) {
    f.messages = get<std::uint32_t>(in, at::messages);
    check_reserved(in, at::after_messages);
    return f;
  }
  f.tag = get<std::uint64_t>(in, at::tag);
  if (f.tag == 0) fail("tag", f.tag);
  if (f.kind == kind::announce) {
    if (const auto wrong = loan_protocol::check(&in[at::loan])) fail(wrong->name, wrong->value);
    f.loan = loan_protocol::decode(&in[at::loan]);
  }
  if (f.kind == kind::taken) {
    f.status = get<std::uint32_t>(in, at::status);
    check_reserved(in, at::after_status);
  }
  return f;
}

}  // namespace cordma::message_protocol
