#pragma once

#include "plan.hpp"
#include "trace.hpp"

#include <cordma/sim.hpp>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace cordma::sim::detail {

class world_state;

/// A scenario's play of one seed, in this process.
class seed_run {
 public:
  struct request {
    const scenario* what = nullptr;
    std::uint64_t seed = 0;
    faults wanted{};
    plan kept{};
    bool keeps_all_events = false;
    coverage* covers = nullptr;  ///< marks the states that it comes to; null: none
  };

  explicit seed_run(const request& r);
  /// Returns the world of the run that goes on in this process; null: none does.
  [[nodiscard]] static world_state* world_now() noexcept;

  /// Empty: nothing was found.
  std::string found;
  std::uint64_t hash = 0;
  std::uint64_t events = 0;
  std::array<std::uint64_t, decision_kinds> decisions_made{};
  std::vector<std::uint64_t> faults_happened;
  std::vector<trace_record> trace;
  std::vector<std::string> host_names;
};

}  // namespace cordma::sim::detail
