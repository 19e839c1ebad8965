#pragma once

#include <cordma/verbs/device.hpp>
#include <cordma/verbs/queue_pair.hpp>

namespace cordma::verbs {

/// Checks the capabilities; a pure function. \errors  errc::limit_exceeded: the first value out of
/// range; the detail names it and its limit. errc::not_supported: the device has no such queues.
void check(const shared_receive_queue_capabilities& wanted, const device_limits& limits);
/// \errors  errc::not_supported: the device has no XRC; the detail says what to do.
void check_xrc(const char* call, const device_limits& limits);

}  // namespace cordma::verbs
