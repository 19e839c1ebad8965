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
  std::string name;  ///< shown where the line ends; lines of one name have one colour
  std::vector<plot_point> points;
  bool is_dashed = false;
};

/// The p50 and the p99 of each size over the loads that its depths made, or its rates.
std::vector<plot_line> lines_of(const std::vector<result>& results);

/// Tells whether there are so few lines that their points can be labelled.
bool labels_points(const std::vector<plot_line>& lines);

/// Moves ascending positions as little as it takes for neighbours to be `gap` apart, between `low`
/// and `high`. If they have no room there, the first ones are below `low`.
std::vector<double> spread(const std::vector<double>& wanted, double gap, double low, double high);

/// A drawing of its own: an SVG with axes and ticks at round numbers. The latency's axis is
/// logarithmic. Without points: the axes. Up to ten names share one panel, and each stands beside
/// the end of its line. More names have a small panel each, all on the same scales.
std::string draw_svg(const std::string& title, const std::vector<plot_line>& lines);

}  // namespace perf
