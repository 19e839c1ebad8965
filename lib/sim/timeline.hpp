#pragma once

#include "seed_run.hpp"

#include <span>
#include <string>

namespace cordma::sim::detail {

/// Returns a picture (SVG) of events: a lane for each host, a mark for each event. A mark's tooltip
/// has its time and text.
std::string timeline(std::span<const trace_record> events, std::span<const std::string> host_names);

/// Returns the picture of a run whose events were kept.
inline std::string timeline(const seed_run& run) { return timeline(run.trace, run.host_names); }

}  // namespace cordma::sim::detail
