#pragma once

#include "methods.hpp"

#include <cordma/runtime/runtime.hpp>

#include <functional>

namespace perf {

/// Told when the server is ready on a connection.
using teller = std::function<void(const remote_end&)>;

/// Allocates the memory that a connection lends its peer.
cordma::local_mr shared_memory(cordma::runtime& rt, const job& what);
/// Waits for the end of a connection without receives. \errors unless the peer closed it.
cordma::task<> wait_for_end(cordma::connection& conn);

/// The server's side of one connection that is measured, until the client ends it. The thread of
/// `rt`. \errors those of a connection that was lost, and of its memory.
cordma::task<> serve_connection(cordma::runtime& rt, job what, teller tell,
                                cordma::connection conn);

}  // namespace perf
