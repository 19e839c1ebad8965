#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace bench {

/// One line of the table and one object of the JSON; a baseline of 0: there is none.
struct figure {
  std::string which, metric, unit;
  double value = 0;
  double baseline = 0;
};

/// Does its work `n` times; setup belongs outside.
using work = std::function<void(std::uint64_t n)>;

/// A side to compare: a name for the table, and its work.
struct side {
  std::string name;
  work does;
};

/// How nanoseconds an operation become the figure that is shown.
struct scale {
  std::string metric, unit;
  double per_ns = 1;     ///< figure = ns * per_ns...
  bool inverse = false;  ///< ...or per_ns / ns
};

/// Measures in short rounds in which all sides take turns, so that they meet the same machine. A
/// figure is the median over rounds; the 10th and 90th percentiles are printed beside it.
class recorder {
 public:
  /// Figures of each of `others` and then of `ours`, with the ratio to the first of them. Returns
  /// our median and theirs. Allocations of ours, once warm, fail the run.
  struct medians {
    double ours = 0;
    double first = 0;
  };
  medians compare(const std::string& which, const scale& as, const std::vector<side>& others,
                  const work& ours);
  void count(figure f);
  /// Prints whether a bar holds; a missed one is printed at the end, too.
  void bar(const std::string& what, bool holds);
  void allocated(const std::string& which, double calls_per_operation);

  void write_json(const std::string& path) const;
  /// The exit status, after a last word about bars.
  [[nodiscard]] int verdict() const;

 private:
  std::vector<figure> figures_;
  std::vector<std::string> missed_;
  bool allocated_ = false;
};

}  // namespace bench
