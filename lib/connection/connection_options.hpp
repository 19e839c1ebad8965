#pragma once

#include <cordma/connection/connection_options.hpp>
#include <cordma/verbs/device.hpp>

namespace cordma {

/// \errors  errc::limit_exceeded: the first value out of range; the detail names it and its limit.
void check(const connection_options& options, const verbs::device_limits& limits,
           const verbs::port_info& port);

}  // namespace cordma
