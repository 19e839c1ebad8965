#pragma once

#include "run/report.hpp"

namespace softverbs::run {

/// Reports what SOFTVERBS_LISTEN and SOFTVERBS_PORT mean here, and whether others hold those names.
void check_ports(report&);

}  // namespace softverbs::run
