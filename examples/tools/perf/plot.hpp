#pragma once

#include "result.hpp"

#include <string>
#include <vector>

namespace perf {

/// Latency against load.
struct plot_point {
  double x = 0;         ///< Operations a second.
  double y = 0;         ///< us, above 0.
  std::string label{};  ///< Beside the point.
};
struct plot_line {
  std::string name;
  std::vector<plot_point> points;
};

/// The p50 and the p99 of each size over the loads that its depths made.
std::vector<plot_line> lines_of(const std::vector<result>& results);

/// A drawing of its own: an SVG with axes, ticks at round numbers and a legend. The latency's axis
/// is logarithmic. Without points: the axes.
std::string draw_svg(const std::string& title, const std::vector<plot_line>& lines);

}  // namespace perf
