#pragma once

#include <cordma/sim.hpp>

#include <span>

namespace cordma::test {

/// Returns all scenarios. Each family has a file.
std::span<const sim::scenario> all_scenarios();

void play_standard(sim::world& w);

}  // namespace cordma::test
