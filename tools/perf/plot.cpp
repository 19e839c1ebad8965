#include "plot.hpp"

#include "size.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace perf {
namespace {

constexpr double width = 800, height_min = 480;
constexpr double left = 80, right = 640, top = 50, bottom = 420;
constexpr int ticks_wanted = 6;
/// To be told apart by those who do not see all colours (Okabe and Ito).
constexpr std::array<const char*, 7> colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                             "#e69f00", "#56b4e9", "#000000"};
/// Colours of a scale from dark to light, like viridis, without those that white paper swallows.
constexpr std::array<std::array<double, 3>, 5> shades{
    {{68, 1, 84}, {59, 82, 139}, {33, 145, 140}, {94, 201, 98}, {210, 200, 20}}};
constexpr double legend_step = 18;
/// More groups than that would write over each other's points.
constexpr std::size_t labelled_max = 3;

std::string number(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.4g", value);
  return text.data();
}

/// 200000 is "200k".
std::string load_text(double value) {
  if (value >= 1e6) return number(value / 1e6) + 'M';
  return value >= 1e3 ? number(value / 1e3) + 'k' : number(value);
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default: out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
    }
  }
  return out;
}

std::string at(const char* x_name, double x, const char* y_name, double y) {
  std::array<char, 80> text;
  std::snprintf(text.data(), text.size(), R"( %s="%.1f" %s="%.1f")", x_name, x, y_name, y);
  return text.data();
}

std::string text_at(double x, double y, const std::string& anchor, const std::string& text) {
  return "<text" + at("x", x, "y", y) + " text-anchor=\"" + anchor + "\">" + escaped(text) +
         "</text>\n";
}

std::string colour_of(std::size_t index, std::size_t count) {
  if (count <= colours.size()) return colours[index];
  const double at = double(index) / double(count - 1) * double(shades.size() - 1);
  const auto low = std::min(std::size_t(at), shades.size() - 2);
  std::array<unsigned, 3> rgb{};
  for (std::size_t i = 0; i < rgb.size(); ++i)
    rgb[i] = unsigned(std::lerp(shades[low][i], shades[low + 1][i], at - double(low)));
  std::array<char, 16> text;
  std::snprintf(text.data(), text.size(), "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
  return text.data();
}

std::string line_from(double x1, double y1, double x2, double y2, const char* colour) {
  return "<line" + at("x1", x1, "y1", y1) + at("x2", x2, "y2", y2) + " stroke=\"" + colour +
         "\"/>\n";
}

/// 1, 2 or 5 times a power of ten, so that about `ticks_wanted` of them make `range`.
double round_step(double range) {
  const double rough = range / ticks_wanted;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough) return times * power;
  }
  return 10 * power;
}

/// Where numbers lie on the drawing.
struct scales {
  double x_max = 1, y_low = 1, y_high = 10;

  explicit scales(const std::vector<plot_line>& lines) {
    double low = INFINITY, high = 0, most = 0;
    for (const plot_line& l : lines) {
      for (const plot_point& p : l.points) {
        low = std::min(low, p.y);
        high = std::max(high, p.y);
        most = std::max(most, p.x);
      }
    }
    if (most > 0) x_max = most * 1.05;
    if (high <= 0 || low <= 0) return;
    y_low = std::pow(10.0, std::floor(std::log10(low)));
    y_high = std::max(std::pow(10.0, std::ceil(std::log10(high))), y_low * 10);
  }
  [[nodiscard]] double x(double value) const { return left + value / x_max * (right - left); }
  [[nodiscard]] double y(double value) const {
    return bottom - std::log(value / y_low) / std::log(y_high / y_low) * (bottom - top);
  }
};

std::string axes(const scales& s) {
  std::string out;
  const double step = round_step(s.x_max);
  for (double x = 0; x <= s.x_max; x += step) {
    out += line_from(s.x(x), top, s.x(x), bottom, "#ddd");
    out += text_at(s.x(x), bottom + 18, "middle", load_text(x));
  }
  for (double y = s.y_low; y <= s.y_high * 1.001; y *= 10) {
    for (int times = 1; times < 10 && y * times <= s.y_high * 1.001; ++times) {
      out += line_from(left, s.y(y * times), right, s.y(y * times), times == 1 ? "#bbb" : "#eee");
    }
    out += text_at(left - 8, s.y(y) + 4, "end", number(y));
  }
  out +=
      line_from(left, bottom, right, bottom, "#000") + line_from(left, top, left, bottom, "#000");
  out += text_at((left + right) / 2, bottom + 42, "middle", "operations a second");
  return out + text_at(left - 60, top - 10, "start", "latency, us");
}

const char* dashes(bool is_dashed) { return is_dashed ? R"( stroke-dasharray="5 4")" : ""; }

std::string curve(const plot_line& line, const scales& s, const std::string& colour,
                  bool has_labels) {
  std::string out = "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + colour + '"' +
                    dashes(line.is_dashed) + " points=\"";
  for (const plot_point& p : line.points) {
    out +=
        number(std::round(s.x(p.x) * 10) / 10) + ',' + number(std::round(s.y(p.y) * 10) / 10) + ' ';
  }
  out += "\"/>\n";
  for (const plot_point& p : line.points) {
    out += "<circle" + at("cx", s.x(p.x), "cy", s.y(p.y)) + " r=\"3\" fill=\"" + colour + "\"/>\n";
    if (has_labels) out += text_at(s.x(p.x) + 5, s.y(p.y) - 5, "start", p.label);
  }
  return out;
}

/// The names of lines, where they end: of those that have room there.
std::string end_labels(const std::vector<plot_line>& lines, const scales& s) {
  constexpr double letter_width = 7.5, letter_height = 12;
  struct label {
    double x, y, end;
  };
  std::vector<label> taken;
  std::string out;
  for (const plot_line& l : lines) {
    if (l.is_dashed || l.points.empty()) continue;
    label here{s.x(l.points.back().x) + 5, s.y(l.points.back().y) + 4, 0};
    here.end = here.x + letter_width * double(l.name.size());
    const bool is_free = std::ranges::none_of(taken, [&](const label& t) {
      return here.x < t.end && t.x < here.end && std::abs(here.y - t.y) < letter_height;
    });
    if (!is_free || here.end > right) continue;
    taken.push_back(here);
    out += text_at(here.x, here.y, "start", l.name);
  }
  return out;
}

/// Gives each name once, in the lines' order.
std::vector<std::string> names_of(const std::vector<plot_line>& lines) {
  std::vector<std::string> names;
  for (const plot_line& l : lines) {
    if (std::ranges::find(names, l.name) == names.end()) names.push_back(l.name);
  }
  return names;
}

std::string legend(const std::vector<std::string>& names, bool has_dashed) {
  double y = top + 10;
  const auto row = [&y](const std::string& colour, bool is_dashed, const std::string& name) {
    std::string out = "<line" + at("x1", right + 15, "y1", y - 4) +
                      at("x2", right + 35, "y2", y - 4) + " stroke-width=\"2\" stroke=\"" + colour +
                      '"' + dashes(is_dashed) + "/>\n" + text_at(right + 40, y, "start", name);
    y += legend_step;
    return out;
  };
  std::string out;
  if (has_dashed) {
    out += row("#000", false, "p50");
    out += row("#000", true, "p99");
  }
  for (std::size_t i = 0; i < names.size(); ++i)
    out += row(colour_of(i, names.size()), false, names[i]);
  return out;
}

}  // namespace

std::vector<plot_line> lines_of(const std::vector<result>& results) {
  std::vector<plot_line> lines;
  const auto line_of = [&lines](const std::string& name, bool is_dashed) -> plot_line& {
    const auto found = std::ranges::find_if(
        lines, [&](const plot_line& l) { return l.name == name && l.is_dashed == is_dashed; });
    return found != lines.end() ? *found : lines.emplace_back(plot_line{name, {}, is_dashed});
  };
  for (const result& r : results) {
    const std::string name = std::string{to_string(r.what.op)} + ' ' + size_text(r.what.size_bytes);
    for (const auto& [is_dashed, part] : {std::pair{false, 0.5}, std::pair{true, 0.99}}) {
      const double us = std::max(double(r.ours.latencies.at(part).count()) / 1e3, 1e-3);
      line_of(name, is_dashed).points.push_back({r.per_second(), us, std::to_string(r.what.depth)});
    }
  }
  return lines;
}

bool labels_points(const std::vector<plot_line>& lines) {
  return names_of(lines).size() <= labelled_max;
}

std::string draw_svg(const std::string& title, const std::vector<plot_line>& lines) {
  const scales s{lines};
  const std::vector<std::string> names = names_of(lines);
  const bool has_dashed = std::ranges::any_of(lines, &plot_line::is_dashed);
  const double height = std::max(height_min, top + legend_step * double(names.size() + 3));
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\"" +
                    at("width", width, "height", height) + " viewBox=\"0 0 " + number(width) + ' ' +
                    number(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  out += "<title>" + escaped(title) + "</title>\n" + text_at(left, 22, "start", title);
  out += axes(s);
  const bool has_labels = labels_points(lines);
  for (const plot_line& l : lines) {
    const auto index = std::size_t(std::ranges::find(names, l.name) - names.begin());
    out += curve(l, s, colour_of(index, names.size()), has_labels);
  }
  if (!has_labels) out += end_labels(lines, s);
  return out + legend(names, has_dashed) + "</svg>\n";
}

}  // namespace perf
