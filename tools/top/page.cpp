#include "page.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace top {
namespace {

constexpr std::string_view prefix = "cordma_";

[[noreturn]] void refuse(const char* why) { throw std::runtime_error{why}; }

bool is_letter(char c) noexcept {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == ':';
}

void skip_blanks(std::string_view& rest) noexcept {
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
}

bool skip(std::string_view& rest, char c) noexcept {
  if (!rest.starts_with(c)) return false;
  rest.remove_prefix(1);
  return true;
}

std::string_view take_name(std::string_view& rest) {
  if (rest.empty() || !is_letter(rest.front())) refuse("a name is missing");
  const auto* const end = std::find_if_not(
      rest.begin(), rest.end(), [](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
  const std::string_view name = rest.substr(0, std::size_t(end - rest.begin()));
  rest.remove_prefix(name.size());
  return name;
}

std::string take_label_value(std::string_view& rest) {
  if (!skip(rest, '"')) refuse("a label's value is not in quotation marks");
  std::string value;
  while (!rest.empty() && rest.front() != '"') {
    if (skip(rest, '\\')) {
      if (rest.empty()) break;
      value += rest.front() == 'n' ? '\n' : rest.front();
    } else {
      value += rest.front();
    }
    rest.remove_prefix(1);
  }
  if (!skip(rest, '"')) refuse("a label's value does not end");
  return value;
}

double take_number(std::string_view& rest) {
  const std::string_view word = rest.substr(0, rest.find_first_of(" \t"));
  rest.remove_prefix(word.size());
  if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (word == "+Inf" || word == "-Inf") return std::numeric_limits<double>::infinity();
  double value = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, error] = std::from_chars(word.data(), end, value);
  if (word.empty() || error != std::errc{} || stop != end) refuse("a sample has no number");
  return value;
}

}  // namespace

page::sample page::parse_line(std::string_view line) {
  sample one;
  one.name = take_name(line);
  skip_blanks(line);
  if (skip(line, '{')) {
    skip_blanks(line);
    while (!skip(line, '}')) {
      if (one.labels.size() == labels_max) refuse("a sample has too many labels");
      std::string name{take_name(line)};
      skip_blanks(line);
      if (!skip(line, '=')) refuse("a label has no value");
      skip_blanks(line);
      one.labels.emplace_back(std::move(name), take_label_value(line));
      skip_blanks(line);
      if (!skip(line, ',') && !line.starts_with('}')) refuse("the labels do not end");
      skip_blanks(line);
    }
  }
  skip_blanks(line);
  one.value = take_number(line);
  skip_blanks(line);
  if (!line.empty()) take_number(line);  // A time, which nobody needs.
  skip_blanks(line);
  if (!line.empty()) refuse("a line does not end after its sample");
  return one;
}

page page::parse(std::string_view text) {
  if (text.size() > bytes_max) refuse("the page is too long");
  page made;
  for (std::size_t number = 1; !text.empty(); ++number) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    skip_blanks(line);
    if (line.empty() || line.starts_with('#')) continue;
    try {
      sample one = parse_line(line);
      if (!one.name.starts_with(prefix)) continue;
      if (made.samples_.size() == samples_max) refuse("the page has too many samples");
      one.name.erase(0, prefix.size());
      made.samples_.push_back(std::move(one));
    } catch (const std::runtime_error& e) {
      throw std::runtime_error{"line " + std::to_string(number) + " of the page: " + e.what()};
    }
  }
  if (made.samples_.empty()) refuse("the page has no metrics of cordma");
  return made;
}

std::optional<double> page::sum(std::string_view name) const { return sum(name, {}); }

std::optional<double> page::sum(std::string_view name, std::string_view kind) const {
  std::optional<double> total;
  const auto has_kind = [&](const sample& one) {
    return kind.empty() || std::ranges::any_of(one.labels, [&](const auto& label) {
             return label.first == "kind" && label.second == kind;
           });
  };
  for (const sample& one : samples_) {
    if (one.name == name && std::isfinite(one.value) && has_kind(one))
      total = total.value_or(0) + one.value;
  }
  return total;
}

std::string_view page::label(std::string_view name) const noexcept {
  for (const sample& one : samples_)
    for (const auto& [own, value] : one.labels)
      if (own == name) return value;
  return {};
}

}  // namespace top
