#include "size.hpp"

#include <array>
#include <charconv>
#include <stdexcept>
#include <utility>

namespace perf {
namespace {

constexpr std::uint64_t most = std::uint64_t{1} << 63;
constexpr std::array<std::pair<char, unsigned>, 3> suffixes{{{'G', 30}, {'M', 20}, {'K', 10}}};

[[noreturn]] void refuse(std::string_view what, std::string_view text, std::string_view why) {
  throw std::invalid_argument{std::string{what} + " '" + std::string{text} +
                              "': " + std::string{why}};
}

unsigned shift_of(char suffix) {
  for (const auto& known : suffixes) {
    if (suffix == known.first || suffix == known.first - 'A' + 'a') return known.second;
  }
  return 0;
}

}  // namespace

std::uint64_t parse_size(std::string_view what, std::string_view text) {
  std::string_view digits = text;
  const unsigned shift = digits.empty() ? 0 : shift_of(digits.back());
  if (shift != 0) digits.remove_suffix(1);
  std::uint64_t value = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (read.ec == std::errc::result_out_of_range || value > most >> shift) {
    refuse(what, text, "too large");
  }
  if (read.ec != std::errc{} || read.ptr != digits.data() + digits.size()) {
    refuse(what, text, "not a number; write it as 8, 64K, 1M or 1G");
  }
  return value << shift;
}

std::vector<std::uint64_t> parse_sweep(std::string_view what, std::string_view text) {
  const std::size_t colon = text.find(':');
  const std::uint64_t from = parse_size(what, text.substr(0, colon));
  if (colon == std::string_view::npos) return {from};
  const std::uint64_t to = parse_size(what, text.substr(colon + 1));
  if (from == 0 || from > to) refuse(what, text, "a sweep goes from a small value to a larger one");
  std::vector<std::uint64_t> all;
  for (std::uint64_t value = from; value <= to; value *= 2) all.push_back(value);
  return all;
}

std::string size_text(std::uint64_t size_bytes) {
  for (const auto& [suffix, shift] : suffixes) {
    const std::uint64_t unit = std::uint64_t{1} << shift;
    if (size_bytes >= unit && size_bytes % unit == 0) {
      return std::to_string(size_bytes >> shift) + suffix;
    }
  }
  return std::to_string(size_bytes);
}

void check_range(const char* name, std::uint64_t value, std::uint64_t low, std::uint64_t high) {
  if (value >= low && value <= high) return;
  throw std::invalid_argument{std::string{name} + ' ' + size_text(value) + ": it goes from " +
                              size_text(low) + " to " + size_text(high)};
}

}  // namespace perf
