#include "pace.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <stdexcept>

namespace perf {
namespace {

constexpr double ns_per_second = 1e9;

double parse_rate(std::string_view text) {
  std::size_t read = 0;
  double value = 0;
  const std::string word{text};
  try {
    value = std::stod(word, &read);
  } catch (const std::exception&) {
    read = 0;
  }
  const std::string_view suffix = std::string_view{word}.substr(read);
  if (suffix == "k" || suffix == "K") value *= 1e3;
  if (suffix == "M") value *= 1e6;
  const bool is_number =
      read != 0 && (suffix.empty() || suffix == "k" || suffix == "K" || suffix == "M");
  if (!is_number || !(value >= pace_options::per_second_min) ||
      value > pace_options::per_second_max) {
    throw std::invalid_argument{"--rate '" + word +
                                "': operations a second, from 0.1 to 100M, such as 5000 or 20k"};
  }
  return value;
}

}  // namespace

const char* to_string(gap_kind gaps) noexcept {
  return gaps == gap_kind::fixed ? "fixed" : "exponential";
}

gap_kind parse_gaps(std::string_view text) {
  for (const gap_kind gaps : {gap_kind::fixed, gap_kind::exponential})
    if (text == to_string(gaps)) return gaps;
  throw std::invalid_argument{"--gaps '" + std::string{text} +
                              "': it is one of fixed, exponential"};
}

std::vector<double> parse_rates(std::string_view text) {
  const std::size_t colon = text.find(':');
  const double from = parse_rate(text.substr(0, colon));
  if (colon == std::string_view::npos) return {from};
  const double to = parse_rate(text.substr(colon + 1));
  if (from > to) {
    throw std::invalid_argument{"--rate '" + std::string{text} +
                                "': a sweep goes from a small value to a larger one"};
  }
  std::vector<double> all;
  for (double value = from; value <= to; value *= 2) all.push_back(value);
  return all;
}

std::string rate_text(double per_second) {
  const bool is_mega = per_second >= 1e6, is_kilo = per_second >= 1e3;
  const double value = per_second / (is_mega ? 1e6 : is_kilo ? 1e3 : 1);
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.4g%s", value, is_mega ? "M" : is_kilo ? "k" : "");
  return text.data();
}

void pace::advance() noexcept {
  const double gap_ns = ns_per_second / options_.per_second;
  ++count_;
  if (options_.gaps == gap_kind::fixed) {
    offset_ns_ = double(count_) * gap_ns;  // A product, so that no error of rounding adds up.
  } else {
    offset_ns_ += -std::log(1 - random_part()) * gap_ns;
  }
}

std::uint64_t pace::due_before(time_point deadline) const noexcept {
  const double left_ns = double((deadline - next()).count());
  return left_ns <= 0 ? 0 : std::uint64_t(std::ceil(left_ns * options_.per_second / ns_per_second));
}

/// From 0 to below 1, by splitmix64.
double pace::random_part() noexcept {
  state_ += 0x9e3779b97f4a7c15u;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return double((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace perf
