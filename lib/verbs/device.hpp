#pragma once

#include <cordma/verbs/device.hpp>

#include <optional>

namespace cordma::verbs {

device_limits limits_of(const ibv_device_attr_ex& attributes) noexcept;

/// Reads one event of the context's async fd; empty when there is none now. The event is
/// acknowledged before the return. Destroying a queue pair, completion queue or SRQ waits for its
/// unacknowledged events, and would hang in the thread that has one.
/// \thread  one at a time. \errors  EIO: the device is gone. \cost  one system call.
[[nodiscard]] std::optional<async_event> next_async_event(context& ctx);

}  // namespace cordma::verbs
