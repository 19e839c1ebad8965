#pragma once

#include <softverbs/simulation.h>

namespace cordma::sim::detail {

class host_state;

/// Returns the functions by which a host's device tells of its work.
softverbs_world device_calls(host_state& host) noexcept;

}  // namespace cordma::sim::detail
