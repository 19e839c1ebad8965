#pragma once

#include "plot.hpp"

#include <string>
#include <vector>

namespace perf {

/// The values that a drawing shows: those of all panels, so that panels compare at sight.
struct plot_range {
  double x_max = 1, y_low = 1, y_high = 10;
  explicit plot_range(const std::vector<plot_line>& lines);
};

/// The rectangle of a drawing in which lines are drawn, with axes at its left and below.
class plot_panel {
 public:
  struct frame {
    double left = 0, right = 0, top = 0, bottom = 0;
  };
  plot_panel(const frame& where, const plot_range& range) : where_{where}, range_{range} {}

  [[nodiscard]] double x(double value) const;
  [[nodiscard]] double y(double value) const;
  [[nodiscard]] const frame& where() const noexcept { return where_; }
  /// Draws axes with about so many ticks of the load, and lines that help to read the latency.
  [[nodiscard]] std::string axes(int ticks) const;
  [[nodiscard]] std::string curve(const plot_line& line, const std::string& colour,
                                  bool has_labels) const;

 private:
  const frame where_;
  const plot_range range_;
};

}  // namespace perf
