#include "message_frame.hpp"

#include "base/failures.hpp"

#include <cinttypes>
#include <concepts>

namespace cordma::message_protocol {
namespace {

// Where the fields are.
namespace at {
constexpr std::size_t kind = 0, taken = 4, tag = 8, loan = 16, status = 16;
constexpr std::size_t messages = 8, after_messages = 12, after_status = 20;
}  // namespace at

using bytes = std::span<const std::byte>;
using cordma::detail::detail_text;
using cordma::detail::throw_failure;
using little_endian::put;

template <std::unsigned_integral T>
T get(bytes in, std::size_t offset) noexcept {
  return little_endian::get<T>(in.data() + offset);
}

void check_reserved(bytes in, std::size_t offset) {
  if (const auto rest = get<std::uint32_t>(in, offset); rest != 0)
    throw_bad_value("reserved", rest);
}

}  // namespace

failure bad_frame(const char* what, const char* call) noexcept {
  return {.code = errc::bad_frame, .call = call, .detail = what};
}

void throw_bad_frame(const char* what, const char* call) { throw error{bad_frame(what, call)}; }

void throw_bad_value(const char* what, std::uint64_t value, const char* call) {
  throw_failure(errc::bad_frame, call, detail_text("%s 0x%" PRIx64, what, value));
}

void encode_loan(const loan_terms& t, std::byte* out) noexcept {
  put(out, t.address);
  put(out + 8, t.length);
  put(out + 16, std::uint64_t(t.isolation) << 32 | t.rkey);
}

loan_terms decode_loan(const std::byte* in) noexcept {
  const auto last = little_endian::get<std::uint64_t>(in + 16);
  return {.address = little_endian::get<std::uint64_t>(in),
          .length = little_endian::get<std::uint64_t>(in + 8),
          .rkey = std::uint32_t(last),
          .isolation = isolation(std::uint8_t(last >> 32))};
}

void check_loan(const std::byte* in, const char* call) {
  const loan_terms t = decode_loan(in);
  if (t.length == 0 || t.length - 1 > UINT64_MAX - t.address)
    throw_bad_value("the length of a loan", t.length, call);
  const auto level = little_endian::get<std::uint32_t>(in + 20);
  if (level < std::uint32_t(isolation::shared_key) || level > std::uint32_t(isolation::exact))
    throw_bad_value("the isolation of a loan", level, call);
}

std::array<std::byte, frame_bytes_max> encode(const frame& f) noexcept {
  std::array<std::byte, frame_bytes_max> out{};
  encode_header(f, out.data());
  if (is_of_credit(f.kind)) {
    put(&out[at::messages], f.messages);
    return out;
  }
  put(&out[at::tag], f.tag);
  if (f.kind == kind::taken) put(&out[at::status], f.status);
  if (f.kind == kind::announce) encode_loan(f.loan, &out[at::loan]);
  return out;
}

frame decode(bytes in) {
  if (in.size() < header_bytes) throw_bad_value("a frame is shorter than its header:", in.size());
  const auto number = std::uint8_t(in[at::kind]);
  if (number < unsigned(kind::data) || number > unsigned(kind::shrunk))
    throw_bad_value("kind", number);
  if (const auto reserved = get<std::uint32_t>(in, at::kind) >> 8; reserved != 0)
    throw_bad_value("reserved", reserved);
  frame f{.kind = kind{number}, .taken = get<std::uint32_t>(in, at::taken)};
  if (f.kind == kind::data || f.kind == kind::control) return f;
  if (in.size() != size_of(f.kind))
    throw_bad_value("the size of a frame of that kind is not", in.size());
  if (f.kind == kind::credit) return f;
  if (is_of_credit(f.kind)) {
    f.messages = get<std::uint32_t>(in, at::messages);
    check_reserved(in, at::after_messages);
    return f;
  }
  f.tag = get<std::uint64_t>(in, at::tag);
  if (f.tag == 0) throw_bad_value("tag", f.tag);
  if (f.kind == kind::announce) {
    check_loan(&in[at::loan], "message_stream");
    f.loan = decode_loan(&in[at::loan]);
  }
  if (f.kind == kind::taken) {
    f.status = get<std::uint32_t>(in, at::status);
    check_reserved(in, at::after_status);
  }
  return f;
}

}  // namespace cordma::message_protocol
