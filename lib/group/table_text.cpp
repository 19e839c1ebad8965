#include "table_text.hpp"

#include "base/environment_variable.hpp"
#include "base/failures.hpp"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>

namespace cordma::detail {
namespace {

[[noreturn]] void refuse(std::string_view change, const std::string& why) {
  throw_errno(EINVAL, "algorithm_table", '"' + std::string{change} + "\": " + why);
}

/// Returns the text before `mark`, and leaves what is behind it; all of the text if there is none.
std::string_view take_until(std::string_view& text, std::string_view mark) {
  const std::size_t at = text.find(mark);
  const std::string_view before = text.substr(0, at);
  text = at == std::string_view::npos ? std::string_view{} : text.substr(at + mark.size());
  return before;
}

std::size_t read_number(std::string_view text, std::string_view change, std::size_t highest) {
  std::string_view digits = text;
  unsigned shift = 0;
  if (const std::size_t unit = std::string_view{"KMG"}.find(text.empty() ? ' ' : text.back());
      unit != std::string_view::npos) {
    shift = 10 * unsigned(unit + 1);
    digits.remove_suffix(1);
  }
  const std::optional<std::uint64_t> number = parse_number(digits);
  if (!number || *number > highest >> shift)
    refuse(change, std::string{text} + " is no number up to " + std::to_string(highest) +
                       ", which may end in K, M or G");
  return std::size_t(*number) << shift;
}

template <class Number>
void read_range(std::string_view text, std::string_view change, Number& first, Number& last) {
  if (text.find("..") == std::string_view::npos)
    refuse(change, std::string{text} + " is no range: write FIRST..LAST, ..LAST or FIRST..");
  const std::string_view lowest = take_until(text, "..");
  const Number highest = last;
  if (!lowest.empty()) first = Number(read_number(lowest, change, highest));
  if (!text.empty()) last = Number(read_number(text, change, highest));
  if (first > last) refuse(change, "the range is empty: its first number is above its last");
}

const algorithm& find(std::string_view kind, std::string_view name, std::string_view change) {
  std::string kinds;
  std::string names;
  for (const algorithm& a : algorithms()) {
    const std::string_view of = to_string(a.kind);
    if (of == kind && a.name == name) return a;
    if (of == kind) names += (names.empty() ? "" : ", ") + std::string{a.name};
    if (!kinds.ends_with(of)) kinds += (kinds.empty() ? "" : ", ") + std::string{of};
  }
  if (names.empty()) refuse(change, std::string{kind} + " is none of " + kinds + ", segment");
  refuse(change, std::string{name} + " is none of " + names);
}

table_change read_change(std::string_view change) {
  table_change read;
  std::string_view rest = change;
  if (change.find('=') == std::string_view::npos)
    refuse(change, "write OPERATION=ALGORITHM, or segment=BYTES");
  const std::string_view kind = take_until(rest, "=");
  if (kind == "segment") {
    read.segment_bytes = read_number(rest, change, algorithm_table::segment_bytes_max);
    if (read.segment_bytes < algorithm_table::segment_bytes_min)
      refuse(change, "a segment has " + std::to_string(algorithm_table::segment_bytes_min) +
                         " bytes at least");
    return read;
  }
  const bool has_ranks = rest.find(':') != std::string_view::npos;
  std::string_view before = take_until(rest, ":");
  const bool has_bytes = before.find('@') != std::string_view::npos;
  const std::string_view name = take_until(before, "@");
  read.row.chosen = &find(kind, name, change);
  if (has_bytes) read_range(before, change, read.row.bytes_min, read.row.bytes_max);
  if (has_ranks) read_range(rest, change, read.row.ranks_min, read.row.ranks_max);
  return read;
}

}  // namespace

void read_changes(std::string_view text, const std::function<void(const table_change&)>& add) {
  constexpr std::string_view separators = ", \t\n";
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(separators), text.size()));
    if (text.empty()) return;
    const std::size_t length = std::min(text.find_first_of(separators), text.size());
    add(read_change(text.substr(0, length)));
    text.remove_prefix(length);
  }
}

}  // namespace cordma::detail
