#include "connection_info.hpp"

#include "base/crc32.hpp"
#include "base/failures.hpp"
#include "base/little_endian.hpp"

#include <array>
#include <charconv>
#include <variant>

namespace cordma::detail {
namespace {

constexpr std::string_view prefix{"cordma-"};
constexpr std::size_t info_bytes = handshake::frame_bytes + sizeof(std::uint32_t);
using info_bytes_t = std::array<std::byte, info_bytes>;
constexpr std::string_view blanks{" \t\r\n"};

std::string_view trimmed(std::string_view text) noexcept {
  const std::size_t first = text.find_first_not_of(blanks);
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(blanks) - first + 1);
}

[[noreturn]] void throw_unreadable(fixed_text<240> why) {
  throw_failure(errc::bad_handshake, "info", why);
}

}  // namespace

std::string info_text(const handshake::hello& of) {
  info_bytes_t bytes;
  const handshake::frame_bytes_t frame = handshake::encode(of);
  std::byte* const end = std::copy(frame.begin(), frame.end(), bytes.data());
  little_endian::put(end, crc32(frame));
  std::string text{prefix};
  for (const std::byte b : bytes) {
    constexpr std::string_view digits{"0123456789abcdef"};
    (text += digits[std::size_t(b >> 4)]) += digits[std::size_t(b & std::byte{15})];
  }
  return text;
}

handshake::hello read_info(std::string_view text) {
  text = trimmed(text);
  if (!text.starts_with(prefix)) {
    throw_unreadable(
        detail_text("\"%.*s\" does not begin as prepared_connection::info does: "
                    "\"cordma-\"",
                    int(text.substr(0, 40).size()), text.data()));
  }
  text.remove_prefix(prefix.size());
  if (text.size() != 2 * info_bytes) {
    throw_unreadable(detail_text("%zu digits, %zu are right: it was cut, or joined", text.size(),
                                 2 * info_bytes));
  }
  info_bytes_t bytes;
  for (std::size_t n = 0; n < info_bytes; ++n) {
    std::uint8_t value = 0;
    const char* const at = text.data() + 2 * n;
    const auto [end, failed] = std::from_chars(at, at + 2, value, 16);
    if (failed != std::errc{} || end != at + 2)
      throw_unreadable(detail_text("no hexadecimal digit at %zu", prefix.size() + 2 * n));
    bytes[n] = std::byte{value};
  }
  const std::span frame = std::span{bytes}.first<handshake::frame_bytes>();
  handshake::check_preamble(frame.first<handshake::preamble_bytes>());
  const auto sum = little_endian::get<std::uint32_t>(bytes.data() + frame.size());
  if (crc32(frame) != sum) throw_unreadable("the checksum does not fit: it was changed on its way");
  const handshake::frame decoded = handshake::decode(frame);
  const auto* const hello = std::get_if<handshake::hello>(&decoded);
  if (hello == nullptr) throw_unreadable("it describes no queue pair");
  return *hello;
}

}  // namespace cordma::detail
