#include <cordma/rpc/method.hpp>

#include "base/random.hpp"

#include <algorithm>
#include <optional>
#include <span>

namespace cordma::rpc {
namespace {

/// The trace's id is random (W3C Trace Context, level 2).
constexpr std::uint8_t random_flag = 2;

// A `traceparent` of version 00: version, trace id, span id and flags, with a dash between each.
constexpr std::size_t trace_id_at = 3, span_id_at = 36, flags_at = 53, text_bytes = 55;
constexpr std::uint8_t version_invalid = 0xff;

bool is_zero(std::span<const std::byte> id) noexcept {
  return std::ranges::all_of(id, [](std::byte b) { return b == std::byte{0}; });
}

/// The value of a digit; 16: none. Capital letters are none, either.
unsigned value_of(char digit) noexcept {
  if (digit >= '0' && digit <= '9') return unsigned(digit - '0');
  if (digit >= 'a' && digit <= 'f') return unsigned(digit - 'a') + 10;
  return 16;
}

bool read_hex(std::string_view digits, std::span<std::byte> out) noexcept {
  for (std::size_t n = 0; n < out.size(); ++n) {
    const unsigned high = value_of(digits[2 * n]), low = value_of(digits[2 * n + 1]);
    if (high > 15 || low > 15) return false;
    out[n] = std::byte(high << 4 | low);
  }
  return true;
}

void write_hex(std::span<const std::byte> bytes, char* out) noexcept {
  constexpr std::string_view digits = "0123456789abcdef";
  for (const std::byte b : bytes) {
    *out++ = digits[unsigned(b) >> 4];
    *out++ = digits[unsigned(b) & 15];
  }
}

std::optional<std::uint8_t> read_byte(std::string_view digits) noexcept {
  std::byte value{};
  if (!read_hex(digits, {&value, 1})) return {};
  return std::uint8_t(value);
}

void fill_with_id(std::span<std::byte> id) {
  do {
    cordma::detail::random_bytes(id);
  } while (is_zero(id));
}

}  // namespace

trace_context trace_context::from_traceparent(std::string_view text) noexcept {
  if (text.size() < text_bytes) return {};
  if (text[trace_id_at - 1] != '-' || text[span_id_at - 1] != '-' || text[flags_at - 1] != '-')
    return {};
  const auto version = read_byte(text);
  const auto flags = read_byte(text.substr(flags_at));
  if (!version || !flags || *version == version_invalid) return {};
  // A later version may add fields, with a dash before them.
  if (text.size() > text_bytes && (*version == 0 || text[text_bytes] != '-')) return {};
  trace_context read;
  if (!read_hex(text.substr(trace_id_at), read.trace_id) ||
      !read_hex(text.substr(span_id_at), read.span_id) || read.is_none())
    return {};
  read.flags = *flags & (*version == 0 ? sampled | random_flag : sampled);
  return read;
}

std::string trace_context::to_traceparent() const {
  if (is_none()) return {};
  std::string text(text_bytes, '-');
  constexpr std::byte version{0};
  const std::byte last{flags};
  write_hex({&version, 1}, text.data());
  write_hex(trace_id, &text[trace_id_at]);
  write_hex(span_id, &text[span_id_at]);
  write_hex({&last, 1}, &text[flags_at]);
  return text;
}

trace_context trace_context::child() const {
  trace_context made = *this;
  if (is_none()) {
    fill_with_id(made.trace_id);
    made.flags = sampled;
  }
  fill_with_id(made.span_id);
  return made;
}

}  // namespace cordma::rpc
