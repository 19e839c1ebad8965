#pragma once

#include <cordma/base/event_log.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/runtime/metrics.hpp>
#include <cordma/verbs/device.hpp>

#include <memory>
#include <string_view>

namespace cordma::detail {

/// Opens the device that `option` names. Empty: the one that CORDMA_DEVICE names; if it is unset,
/// the first device with an ACTIVE port. \errors  as `verbs::context`; EINVAL: CORDMA_DEVICE.
verbs::context open_device(std::string_view option);

/// Returns `options`, with those that are unset taken from the environment (docs/connecting.md). A
/// variable whose option is set is not read. \errors  EINVAL: a wrong variable; names its text.
connection_options with_environment(connection_options options, const verbs::context& ctx);

/// Returns `options`; without a hook, with one that writes to standard error what CORDMA_LOG says.
/// \errors  EINVAL: no level.
event_log with_environment(event_log options);

/// Serves a runtime's metrics at "@cordma-metrics-PID-N" if CORDMA_METRICS is on; null: it is not,
/// or the host is simulated. \errors  EINVAL: CORDMA_METRICS; as `metrics_server`.
std::unique_ptr<metrics_server> serve_metrics(runtime& of);

}  // namespace cordma::detail
