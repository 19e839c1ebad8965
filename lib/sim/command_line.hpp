#pragma once

#include "plan.hpp"

#include <cordma/sim.hpp>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace cordma::sim::detail {

/// The request of a user of `run_scenarios`.
struct command_line {
  struct profile {
    std::string name;
    faults wanted{};
  };
  /// A seed that has failed before.
  struct known_seed {
    const scenario* what = nullptr;
    profile with{};
    std::uint64_t seed = 0;
  };

  /// \errors EINVAL; the message names the wrong argument. Prints help, and ends the process, if
  ///   that was asked for.
  command_line(int argc, const char* const* argv, std::span<const scenario> all);

  std::vector<const scenario*> scenarios;
  std::vector<profile> profiles;
  std::uint64_t first_seed = 1;
  std::optional<std::uint64_t> last_seed;  ///< unset: until the minutes are over
  double minutes = 0;
  unsigned jobs = 1;
  plan kept{};
  bool shrinks = true;
  std::chrono::milliseconds seed_limit{};  ///< A seed that takes so much longer hangs.
  std::string timeline;                    ///< file; empty: none
  std::vector<known_seed> known;
};

}  // namespace cordma::sim::detail
