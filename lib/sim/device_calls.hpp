#pragma once

#include <softverbs/simulation.h>

namespace cordma::sim::detail {

class world_state;

/// Returns the functions by which the devices of a world tell of their work.
softverbs_world device_calls(world_state& w) noexcept;

}  // namespace cordma::sim::detail
