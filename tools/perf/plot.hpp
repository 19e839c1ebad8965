#pragma once

#include "result.hpp"

#include <string>
#include <vector>

namespace perf {

/// Latency against load.
struct plot_point {
  double x = 0;         ///< Operations a second.
  double y = 0;         ///< us, above 0.
  std::string label{};  ///< shown beside the point
};
struct plot_line {
  std::string name;  ///< shown in the legend; lines of one name have one colour
  std::vector<plot_point> points;
  bool is_dashed = false;
};

/// The p50 and the p99 of each size over the loads that its depths made.
std::vector<plot_line> lines_of(const std::vector<result>& results);

/// Tells whether there are so few lines that their points can be labelled.
bool labels_points(const std::vector<plot_line>& lines);

/// A drawing of its own: an SVG with axes, ticks at round numbers and a legend, which makes it as
/// high as that needs. The latency's axis is logarithmic. Without points: the axes. Few names have
/// colours that are told apart at sight, many the shades of a scale, and names where lines end.
std::string draw_svg(const std::string& title, const std::vector<plot_line>& lines);

}  // namespace perf
