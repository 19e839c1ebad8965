#pragma once

#include "model.hpp"

#include <cstdint>
#include <vector>

namespace model {

/// One scenario of a class, with the limits within which its orders are tried.
struct exploration {
  const char* name;
  limits how;
  std::uint64_t least_runs;  ///< fewer would mean that most orders are not tried any more
  outcome (*run)(const limits&);
};

// Each source of scenarios defines one of these.
std::vector<exploration> explorations_of_mailbox();
std::vector<exploration> explorations_of_published_list();
std::vector<exploration> explorations_of_memory();
std::vector<exploration> explorations_of_keys();
std::vector<exploration> explorations_of_ring();
std::vector<exploration> explorations_of_engine();

/// Runs one, prints its counts, and returns its finding. With CORDMA_MODEL_SCENARIO it runs that
/// one only.
std::string found_by(const exploration& one, std::uint64_t random_runs, std::uint64_t seed);
/// Runs all, up to the first finding.
std::string found_by(const std::vector<exploration>& all);
/// Runs the scenarios with random orders only, each so often.
std::string found_at_random(const std::vector<exploration>& all, std::uint64_t runs,
                            std::uint64_t seed);

}  // namespace model
