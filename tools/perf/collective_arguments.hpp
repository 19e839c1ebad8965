#pragma once

#include "collective_plan.hpp"

#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace perf {

/// The command `collectives`, as the user writes it.
class collective_arguments {
 public:
  explicit collective_arguments(CLI::App& app);
  collective_arguments(const collective_arguments&) = delete;

  [[nodiscard]] bool is_parsed() const;
  /// \errors std::invalid_argument: as `check`, and what is no number, size or name.
  [[nodiscard]] collectives_options read() const;

 private:
  CLI::App* const command_;
  collectives_options options_;
  std::vector<std::string> operations_, sizes_;
  std::string mode_ = "event", duration_ = "0.2", memory_ = "2G", json_ = "";
};

}  // namespace perf
