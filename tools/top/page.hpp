#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace top {

/// A page of metrics in Prometheus' text format, version 0.0.4: the samples of cordma in it. A page
/// may come from anybody, and be anything.
class page {
 public:
  static constexpr std::size_t bytes_max = std::size_t{4} << 20;
  static constexpr std::size_t samples_max = 65536;
  static constexpr std::size_t labels_max = 32;  ///< Most labels of one sample.

  /// \errors std::runtime_error: the line that is wrong, and how; or that nothing is cordma's.
  static page parse(std::string_view text);

  /// Returns the sum of all samples of that name, whatever their labels; nothing if there are none.
  [[nodiscard]] std::optional<double> sum(std::string_view name) const;
  /// Returns the sum of those whose label `kind` has that value.
  [[nodiscard]] std::optional<double> sum(std::string_view name, std::string_view kind) const;
  /// Returns the label's value in the first sample that has the label; empty: none has.
  [[nodiscard]] std::string_view label(std::string_view name) const noexcept;

 private:
  struct sample {
    std::string name;  ///< Without "cordma_".
    std::vector<std::pair<std::string, std::string>> labels;
    double value = 0;
  };

  [[nodiscard]] static sample parse_line(std::string_view line);

  std::vector<sample> samples_;
};

}  // namespace top
