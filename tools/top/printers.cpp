#include "printers.hpp"

#include "../perf/text.hpp"

#include <algorithm>
#include <array>

namespace top {
namespace {

using perf::append;
using perf::json_string;

constexpr std::size_t pid_columns = 7;
constexpr std::size_t name_columns_min = 16;
constexpr std::size_t name_columns_max = 40;
constexpr std::size_t device_columns = 9;
constexpr std::size_t figure_columns = 9;

std::string left(std::string_view text, std::size_t columns) {
  std::string made{text.substr(0, columns)};
  return made.append(columns - made.size(), ' ');
}

std::string right(std::string_view text, std::size_t columns) {
  return std::string(columns - std::min(columns, text.size()), ' ').append(text);
}

std::size_t name_columns_of(std::span<const program_line> lines) {
  std::size_t longest = name_columns_min;
  for (const program_line& one : lines) longest = std::max(longest, one.name.size());
  return std::min(longest, name_columns_max);
}

std::size_t figures_that_fit(std::size_t columns, std::size_t name_columns) {
  const std::size_t fixed = pid_columns + 1 + name_columns + 1 + device_columns;
  if (columns == 0) return all_figures.size();
  return columns < fixed ? 0 : std::min(all_figures.size(), (columns - fixed) / figure_columns);
}

std::string json_number(std::optional<double> value) {
  std::string text;
  if (value)
    append(text, "%.6g", *value);
  else
    text = "null";
  return text;
}

std::string json_object(const program_line& one) {
  std::string text = "{\"pid\": " + (one.pid == 0 ? "null" : std::to_string(one.pid)) +
                     ", \"name\": " + json_string(one.name) +
                     ", \"device\": " + (one.device.empty() ? "null" : json_string(one.device)) +
                     ", \"state\": " + json_string(to_string(one.state)) +
                     ", \"reason\": " + (one.reason.empty() ? "null" : json_string(one.reason)) +
                     ", \"figures\": {";
  for (std::size_t n = 0; n < all_figures.size(); ++n) {
    if (n != 0) text += ", ";
    text += json_string(all_figures[n].name) + ": " + json_number(one.figures[n]);
  }
  return text + "}}";
}

}  // namespace

std::string short_number(std::optional<double> value, figure_kind kind) {
  if (!value) return "-";
  double left_over = *value;
  const double step = kind == figure_kind::bytes ? 1024 : 1000;
  constexpr std::array<const char*, 7> units{"", "k", "M", "G", "T", "P", "E"};
  std::size_t unit = 0;
  // Rounding makes 999.96k what is larger than the next unit.
  while (left_over >= step - 0.05 && unit + 1 < units.size()) {
    left_over /= step;
    ++unit;
  }
  std::string text;
  const bool is_whole = unit == 0 && (kind == figure_kind::now || kind == figure_kind::bytes);
  append(text, is_whole ? "%.0f%s" : "%.1f%s", left_over, units[unit]);
  return text;
}

std::string table(std::span<const program_line> lines, std::size_t columns) {
  const std::size_t name_columns = name_columns_of(lines);
  const std::size_t fitting = figures_that_fit(columns, name_columns);
  std::string text = right("PID", pid_columns) + ' ' + left("PROGRAM", name_columns) + ' ' +
                     left("DEVICE", device_columns);
  for (std::size_t n = 0; n < fitting; ++n) text += right(all_figures[n].heading, figure_columns);
  text += '\n';
  for (const program_line& one : lines) {
    std::string row = right(one.pid == 0 ? "-" : std::to_string(one.pid), pid_columns) + ' ' +
                      left(one.name, name_columns) + ' ' + left(one.device, device_columns);
    const bool has_figures =
        one.state == program_state::running || one.state == program_state::starting;
    for (std::size_t n = 0; has_figures && n < fitting; ++n)
      row += right(short_number(one.figures[n], all_figures[n].kind), figure_columns);
    if (!has_figures) {
      row += std::string{' '} + to_string(one.state);
      if (!one.reason.empty()) row += ": " + one.reason;
    }
    if (columns != 0 && row.size() > columns) row.resize(columns);
    text += row + '\n';
  }
  if (columns != 0 && text.find('\n') > columns) text.erase(columns, text.find('\n') - columns);
  return text;
}

std::string json(std::span<const program_line> lines, seconds at) {
  std::string text;
  append(text, "{\"at_s\": %.3f, \"programs\": [", at.count());
  for (const program_line& one : lines) {
    if (&one != lines.data()) text += ", ";
    text += json_object(one);
  }
  return text + "]}\n";
}

}  // namespace top
