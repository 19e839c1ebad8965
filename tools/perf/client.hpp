#pragma once

#include "result.hpp"

#include <cordma/runtime/runtime.hpp>

#include <functional>
#include <string>
#include <vector>

namespace perf {

/// Runs jobs with a server, one after another. `each` is told of each result.
/// \errors those of the connections; errc::handler_failed: what the server refuses.
cordma::task<> run_with_server(cordma::runtime& control, client_options options,
                               cordma::endpoint server, std::vector<job> jobs,
                               std::function<void(const result&)> each);

}  // namespace perf
