#include "plot.hpp"

#include "plot_panel.hpp"
#include "size.hpp"
#include "svg.hpp"

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

namespace perf {

using svg::line_from;
using svg::text_at;

namespace {

constexpr double width = 800, height_of_one = 480;
constexpr plot_panel::frame whole{.left = 80, .right = 640, .top = 50, .bottom = 420};
constexpr double label_gap = 14, label_offset = 24, letter_drop = 4;
/// The first seven are told apart by those who do not see all colours (Okabe and Ito).
constexpr std::array<const char*, 10> colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                              "#e69f00", "#56b4e9", "#000000", "#7a5195",
                                              "#8c564b", "#7f7f7f"};
/// More groups than that would write over each other's points.
constexpr std::size_t labelled_max = 3;
// Panels of a drawing with more lines than there are colours.
constexpr std::size_t columns = 4;
constexpr double column_width = 190, row_height = 160, panel_width = 140, panel_height = 100;
constexpr double panels_left = 52, panels_top = 66;

/// Gives each name once, in the lines' order.
std::vector<std::string> names_of(const std::vector<plot_line>& lines) {
  std::vector<std::string> names;
  for (const plot_line& l : lines) {
    if (std::ranges::find(names, l.name) == names.end()) names.push_back(l.name);
  }
  return names;
}

bool has_dashes(const std::vector<plot_line>& lines) {
  return std::ranges::any_of(lines, &plot_line::is_dashed);
}

std::string head(const std::string& title, double height, bool has_dashed) {
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\"" +
                    svg::at("width", width, "height", height) + " viewBox=\"0 0 " +
                    svg::number(width) + ' ' + svg::number(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  out += "<title>" + svg::escaped(title) + "</title>\n" + text_at(whole.left, 22, "start", title);
  if (!has_dashed) return out;
  double x = whole.right;
  for (const auto& [is_dashed, name] : {std::pair{false, "p50"}, std::pair{true, "p99"}}) {
    out += "<line" + svg::at("x1", x, "y1", 36) + svg::at("x2", x + 24, "y2", 36) +
           " stroke-width=\"2\" stroke=\"#000\"" + svg::dashes(is_dashed) + "/>\n" +
           text_at(x + 29, 40, "start", name);
    x += 70;
  }
  return out;
}

/// The names of lines, in their colours, at the right of where they end, none over another.
std::string end_labels(const std::vector<plot_line>& lines, const std::vector<std::string>& names,
                       const plot_panel& panel) {
  struct end {
    double x, y;
    std::string name, colour;
  };
  std::vector<end> ends;
  for (const plot_line& l : lines) {
    if (l.is_dashed || l.points.empty()) continue;
    const auto index = std::size_t(std::ranges::find(names, l.name) - names.begin());
    const plot_point& last = l.points.back();
    ends.push_back({panel.x(last.x), panel.y(last.y), l.name, colours[index]});
  }
  std::ranges::sort(ends, {}, [](const end& e) { return std::tie(e.y, e.name); });
  std::vector<double> wanted;
  wanted.reserve(ends.size());
  for (const end& e : ends) wanted.push_back(e.y);
  const std::vector<double> given = spread(wanted, label_gap, whole.top, whole.bottom);
  std::string out;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    const end& e = ends[i];
    out += "<g stroke-dasharray=\"1 3\">" +
           line_from(e.x + 4, e.y, whole.right + label_offset - 4, given[i], e.colour) + "</g>\n";
    out += text_at(whole.right + label_offset, given[i] + letter_drop, "start", e.name, e.colour);
  }
  return out;
}

std::string draw_one(const std::string& title, const std::vector<plot_line>& lines,
                     const std::vector<std::string>& names) {
  const plot_panel panel{whole, plot_range{lines}};
  std::string out = head(title, height_of_one, has_dashes(lines)) + panel.axes(6);
  out +=
      text_at((whole.left + whole.right) / 2, whole.bottom + 42, "middle", "operations a second");
  out += text_at(whole.left - 60, whole.top - 10, "start", "latency, us");
  const bool has_labels = labels_points(lines);
  for (const plot_line& l : lines) {
    const auto index = std::size_t(std::ranges::find(names, l.name) - names.begin());
    out += panel.curve(l, colours[index], has_labels);
  }
  return out + end_labels(lines, names, panel) + "</svg>\n";
}

/// A panel for each name, all on the same scales.
std::string draw_panels(const std::string& title, const std::vector<plot_line>& lines,
                        const std::vector<std::string>& names) {
  const std::size_t rows = (names.size() + columns - 1) / columns;
  const double height = panels_top + row_height * double(rows) + 20;
  const plot_range range{lines};
  std::string out = head(title, height, has_dashes(lines));
  out += text_at(8, 40, "start", "latency, us");
  for (std::size_t i = 0; i < names.size(); ++i) {
    const std::size_t row = i / columns;
    const double left = panels_left + column_width * double(i % columns);
    const double top = panels_top + row_height * double(row);
    const plot_panel panel{{left, left + panel_width, top, top + panel_height}, range};
    out += text_at(left, top - 6, "start", names[i]) + panel.axes(3);
    for (const plot_line& l : lines)
      if (l.name == names[i]) out += panel.curve(l, colours[0], false);
  }
  return out + text_at(width / 2, height - 12, "middle", "operations a second") + "</svg>\n";
}

}  // namespace

std::vector<double> spread(const std::vector<double>& wanted, double gap, double low, double high) {
  // Neighbours without room form a group, which lies around the mean of what its members want.
  struct group {
    double sum;
    std::size_t count;
    [[nodiscard]] double mean() const { return sum / double(count); }
  };
  std::vector<group> groups;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    groups.push_back({wanted[i] - double(i) * gap, 1});
    while (groups.size() > 1 && groups[groups.size() - 2].mean() > groups.back().mean()) {
      const group last = groups.back();
      groups.pop_back();
      groups.back().sum += last.sum;
      groups.back().count += last.count;
    }
  }
  std::vector<double> given;
  for (const group& g : groups) {
    for (std::size_t i = 0; i < g.count; ++i)
      given.push_back(std::max(g.mean(), low) + double(given.size()) * gap);
  }
  double most = high;
  for (std::size_t i = given.size(); i-- > 0; most = given[i] - gap)
    given[i] = std::min(given[i], most);
  return given;
}

std::vector<plot_line> lines_of(const std::vector<result>& results) {
  std::vector<plot_line> lines;
  const auto line_of = [&lines](const std::string& name, bool is_dashed) -> plot_line& {
    const auto found = std::ranges::find_if(
        lines, [&](const plot_line& l) { return l.name == name && l.is_dashed == is_dashed; });
    return found != lines.end() ? *found : lines.emplace_back(plot_line{name, {}, is_dashed});
  };
  for (const result& r : results) {
    const job& what = r.what;
    const std::string label = what.rate != 0 ? rate_text(what.rate) : std::to_string(what.depth);
    std::string name = std::string{to_string(what.op)} + ' ' + size_text(what.size_bytes);
    // The depths of an open loop are lines; its rates are the points of one.
    const bool has_depths = what.rate != 0 && what.depth != results.front().what.depth;
    if (has_depths) name += ", depth " + std::to_string(what.depth);
    for (const auto& [is_dashed, part] : {std::pair{false, 0.5}, std::pair{true, 0.99}}) {
      const double latency = std::max(us(r.ours.latencies.at(part)), 1e-3);
      line_of(name, is_dashed).points.push_back({r.per_second(), latency, label});
    }
  }
  return lines;
}

bool labels_points(const std::vector<plot_line>& lines) {
  return names_of(lines).size() <= labelled_max;
}

std::string draw_svg(const std::string& title, const std::vector<plot_line>& lines) {
  const std::vector<std::string> names = names_of(lines);
  return names.size() <= colours.size() ? draw_one(title, lines, names)
                                        : draw_panels(title, lines, names);
}

}  // namespace perf
