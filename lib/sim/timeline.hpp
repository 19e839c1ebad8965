#pragma once

#include "seed_run.hpp"

#include <string>

namespace cordma::sim::detail {

/// Returns a picture (SVG) of a run whose events were kept: a lane for each host, a mark for each
/// event. A mark's tooltip has its time and text.
std::string timeline(const seed_run& run);

}  // namespace cordma::sim::detail
