#pragma once

#include "limits.hpp"
#include "load.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace perf {

/// The options of one side's device and threads, as the user writes them.
struct side_arguments {
  std::string device{}, pin{};
  std::optional<std::uint32_t> port{}, gid_index{};

  void add_to(CLI::App& to);
  /// \errors std::invalid_argument: a value out of range.
  [[nodiscard]] device_choice read_device() const;
  [[nodiscard]] std::vector<unsigned> read_pin() const;
};

/// The options of `client` and `local` about what is measured, as the user writes them.
class job_arguments {
 public:
  /// Adds the options to a command; only one of the commands is used.
  void add_to(CLI::App& to);

  /// Makes a job for each value of the sweeps.
  /// \errors std::invalid_argument: the first value out of range, and options that exclude others.
  [[nodiscard]] std::vector<job> read(bool has_baseline, bool has_plot) const;
  /// \errors as `parse_limit` and `check_measured`.
  [[nodiscard]] std::vector<limit> read_limits(const std::vector<job>& jobs,
                                               bool has_baseline) const;
  [[nodiscard]] std::optional<std::chrono::milliseconds> read_report_every() const;

 private:
  [[nodiscard]] job read_first(bool has_baseline) const;
  [[nodiscard]] std::string depth_text(bool has_plot) const;

  std::string op_ = "write", size_, depth_, mode_, duration_ = "2", operations_ = "0";
  std::string warm_up_, rate_, gaps_, report_every_;
  std::uint32_t connections_ = 0, threads_ = 1;
  bool is_endless_ = false, is_bidirectional_ = false;
  path_options path_;
  std::vector<std::string> fail_above_, fail_below_;
};

}  // namespace perf
