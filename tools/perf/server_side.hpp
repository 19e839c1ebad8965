#pragma once

#include "methods.hpp"

#include <cordma/runtime/runtime.hpp>

#include <functional>

namespace perf {

/// Told when the server is ready on a connection.
using teller = std::function<void(const remote_end&)>;

/// The server's side of one connection that is measured, until the client ends it. The thread of
/// `rt`. \errors those of a connection that was lost, and of its memory.
cordma::task<> serve_connection(cordma::runtime& rt, job what, teller tell,
                                cordma::connection conn);

}  // namespace perf
