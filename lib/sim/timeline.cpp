#include "timeline.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <map>
#include <string_view>
#include <utility>

namespace cordma::sim::detail {
namespace {

constexpr unsigned left = 90, top = 40, lane_height = 70, step = 9, label_every = 20;

std::string escaped(std::string_view text) {
  std::string made;
  for (const char c : text) {
    switch (c) {
      case '<': made += "&lt;"; break;
      case '>': made += "&gt;"; break;
      case '&': made += "&amp;"; break;
      default: made += c;
    }
  }
  return made;
}

std::string milliseconds(time_point at) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.4f", double(at.time_since_epoch().count()) / 1e6);
  return text.data();
}

/// Returns an element of SVG with whole numbers as attributes.
std::string element(const char* name,
                    std::initializer_list<std::pair<const char*, unsigned>> numbers,
                    std::string_view more) {
  std::string made = std::string{"<"} + name;
  for (const auto& [key, value] : numbers)
    made += ' ' + std::string{key} + "=\"" + std::to_string(value) + '"';
  return made + ' ' + std::string{more} + '\n';
}

const char* colour_of(const trace_record& r) {
  const std::string_view what = r.what.text;
  if (what.starts_with("sends frame")) return "#1f77b4";
  if (what.starts_with("gets frame")) return "#2ca02c";
  if (what.starts_with("loses")) return "#d62728";
  if (what.starts_with("is ") || what.starts_with("fault")) return "#d62728";
  return "#7f7f7f";
}

}  // namespace

std::string timeline(std::span<const trace_record> events,
                     std::span<const std::string> host_names) {
  const auto x_of = [](std::size_t n) { return left + unsigned(n) * step; };
  const auto y_of = [](unsigned host) { return top + host * lane_height - lane_height / 2; };
  const unsigned width = x_of(events.size()) + 40;
  const unsigned height = top + unsigned(host_names.size()) * lane_height + 30;
  std::string svg = element("svg", {{"width", width}, {"height", height}},
                            "xmlns=\"http://www.w3.org/2000/svg\" font-family=\"sans-serif\" "
                            "font-size=\"12\">") +
                    "<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n";
  for (unsigned h = 1; h <= host_names.size(); ++h) {
    svg += element("line", {{"x1", left}, {"x2", width - 20}, {"y1", y_of(h)}, {"y2", y_of(h)}},
                   "stroke=\"#cccccc\"/>");
    svg += element("text", {{"x", 10}, {"y", y_of(h) + 4}}, ">") + escaped(host_names[h - 1]) +
           "</text>\n";
  }
  std::map<std::uint64_t, std::pair<unsigned, unsigned>> sent;
  for (std::size_t n = 0; n < events.size(); ++n) {
    const trace_record& r = events[n];
    const unsigned x = x_of(n), y = y_of(r.host);
    if (n % label_every == 0)
      svg += element("text", {{"x", x}, {"y", top - 20}}, "fill=\"#666666\">") +
             milliseconds(r.at) + " ms</text>\n";
    const std::string_view what = r.what.text;
    if (what.starts_with("sends frame")) sent[r.numbers[0]] = {x, y};
    const auto from = sent.find(r.numbers[0]);
    if ((what.starts_with("gets frame") || what.starts_with("loses frame")) && from != sent.end())
      svg += element(
          "line", {{"x1", from->second.first}, {"y1", from->second.second}, {"x2", x}, {"y2", y}},
          what.starts_with("gets") ? "stroke=\"#2ca02c\"/>"
                                   : "stroke=\"#d62728\" stroke-dasharray=\"4\"/>");
    svg += element("circle", {{"cx", x}, {"cy", y}, {"r", 3}},
                   std::string{"fill=\""} + colour_of(r) + "\"><title>" + milliseconds(r.at) +
                       " ms  " + escaped(r.text()) + "</title></circle>");
  }
  return svg + "</svg>\n";
}

}  // namespace cordma::sim::detail
