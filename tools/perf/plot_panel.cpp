#include "plot_panel.hpp"

#include "svg.hpp"

#include <algorithm>
#include <cmath>

namespace perf {

using svg::line_from;
using svg::text_at;

namespace {

/// 1, 2 or 5 times a power of ten, so that about `ticks` of them make `range`.
double round_step(double range, int ticks) {
  const double rough = range / ticks;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0}) {
    if (times * power >= rough) return times * power;
  }
  return 10 * power;
}

/// 200000 is "200k".
std::string short_text(double value) {
  if (value >= 1e6) return svg::number(value / 1e6) + 'M';
  return value >= 1e3 ? svg::number(value / 1e3) + 'k' : svg::number(value);
}

}  // namespace

plot_range::plot_range(const std::vector<plot_line>& lines) {
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

double plot_panel::x(double value) const {
  return where_.left + value / range_.x_max * (where_.right - where_.left);
}
double plot_panel::y(double value) const {
  return where_.bottom - std::log(value / range_.y_low) / std::log(range_.y_high / range_.y_low) *
                             (where_.bottom - where_.top);
}

std::string plot_panel::axes(int ticks) const {
  std::string out;
  const auto& [left, right, top, bottom] = where_;
  const double step = round_step(range_.x_max, ticks);
  for (double value = 0; value <= range_.x_max; value += step) {
    out += line_from(x(value), top, x(value), bottom, "#ddd");
    out += text_at(x(value), bottom + 16, "middle", short_text(value));
  }
  for (double value = range_.y_low; value <= range_.y_high * 1.001; value *= 10) {
    for (int times = 1; times < 10 && value * times <= range_.y_high * 1.001; ++times)
      out +=
          line_from(left, y(value * times), right, y(value * times), times == 1 ? "#bbb" : "#eee");
    out += text_at(left - 8, y(value) + 4, "end", short_text(value));
  }
  return out + line_from(left, bottom, right, bottom, "#000") +
         line_from(left, top, left, bottom, "#000");
}

std::string plot_panel::curve(const plot_line& line, const std::string& colour,
                              bool has_labels) const {
  std::string out = "<polyline fill=\"none\" stroke-width=\"" +
                    std::string{line.is_dashed ? "1.2" : "2"} + "\" stroke=\"" + colour + '"' +
                    svg::dashes(line.is_dashed) + " points=\"";
  for (const plot_point& p : line.points) {
    out += svg::number(std::round(x(p.x) * 10) / 10) + ',' +
           svg::number(std::round(y(p.y) * 10) / 10) + ' ';
  }
  out += "\"/>\n";
  for (const plot_point& p : line.points) {
    out +=
        "<circle" + svg::at("cx", x(p.x), "cy", y(p.y)) + " r=\"2.5\" fill=\"" + colour + "\"/>\n";
    if (has_labels) out += text_at(x(p.x) + 5, y(p.y) - 5, "start", p.label);
  }
  return out;
}

}  // namespace perf
