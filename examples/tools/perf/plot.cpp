#include "plot.hpp"

#include "size.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace perf {
namespace {

constexpr double width = 800, height = 480;
constexpr double left = 80, right = 640, top = 50, bottom = 420;
constexpr int ticks_wanted = 6;
/// To be told apart by those who do not see all colours (Okabe and Ito).
constexpr std::array<const char*, 7> colours{"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                             "#e69f00", "#56b4e9", "#000000"};

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

std::string curve(const plot_line& line, const scales& s, const char* colour, double legend_y) {
  std::string out =
      "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"" + std::string{colour} + "\" points=\"";
  for (const plot_point& p : line.points) {
    out +=
        number(std::round(s.x(p.x) * 10) / 10) + ',' + number(std::round(s.y(p.y) * 10) / 10) + ' ';
  }
  out += "\"/>\n";
  for (const plot_point& p : line.points) {
    out += "<circle" + at("cx", s.x(p.x), "cy", s.y(p.y)) + " r=\"3\" fill=\"" + colour + "\"/>\n";
    out += text_at(s.x(p.x) + 5, s.y(p.y) - 5, "start", p.label);
  }
  out += line_from(right + 15, legend_y - 4, right + 35, legend_y - 4, colour);
  return out + text_at(right + 40, legend_y, "start", line.name);
}

}  // namespace

std::vector<plot_line> lines_of(const std::vector<result>& results) {
  std::vector<plot_line> lines;
  const auto line_named = [&lines](const std::string& name) -> plot_line& {
    const auto found = std::ranges::find(lines, name, &plot_line::name);
    return found != lines.end() ? *found : lines.emplace_back(plot_line{name, {}});
  };
  for (const result& r : results) {
    const std::string name = std::string{to_string(r.what.op)} + ' ' + size_text(r.what.size_bytes);
    for (const auto& [what, part] : {std::pair{" p50", 0.5}, std::pair{" p99", 0.99}}) {
      const double us = std::max(double(r.ours.latencies.at(part).count()) / 1e3, 1e-3);
      line_named(name + what).points.push_back({r.per_second(), us, std::to_string(r.what.depth)});
    }
  }
  return lines;
}

std::string draw_svg(const std::string& title, const std::vector<plot_line>& lines) {
  const scales s{lines};
  std::string out = "<svg xmlns=\"http://www.w3.org/2000/svg\"" +
                    at("width", width, "height", height) + " viewBox=\"0 0 " + number(width) + ' ' +
                    number(height) +
                    "\" font-family=\"sans-serif\" font-size=\"12\">\n"
                    "<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n";
  out += "<title>" + escaped(title) + "</title>\n" + text_at(left, 22, "start", title);
  out += axes(s);
  double legend_y = top + 10;
  for (std::size_t i = 0; i < lines.size(); ++i, legend_y += 18) {
    out += curve(lines[i], s, colours[i % colours.size()], legend_y);
  }
  return out + "</svg>\n";
}

}  // namespace perf
