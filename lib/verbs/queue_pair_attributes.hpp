#pragma once

#include <cordma/verbs/device.hpp>
#include <cordma/verbs/queue_pair_attributes.hpp>

namespace cordma::verbs {

/// Each `check` is a pure function.
/// \errors  errc::limit_exceeded: the first value out of range; the detail names it and its limit.
void check(const queue_pair_capabilities& wanted, const device_limits& limits);
void check(const rtr_attributes& attributes, const device_limits& limits);
void check(const rts_attributes& attributes, const device_limits& limits);

}  // namespace cordma::verbs
