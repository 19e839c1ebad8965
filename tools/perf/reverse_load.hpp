#pragma once

#include "meter.hpp"
#include "server_side.hpp"

#include <functional>

namespace perf {

/// The operations of one connection that the server did on the client's memory.
struct reverse_measured {
  histogram latencies{};
  clock::time_point began{}, ended{};
};
/// Told of the server's own operations when they have ended.
using reverse_teller = std::function<void(const reverse_measured&)>;

/// The server's side of a connection of a job in both directions. It lends memory to the client,
/// whose first message names memory of its own. On that the server does the same operations, until
/// they are over or a second message comes, and then sends a message.
cordma::task<> serve_both_directions(cordma::runtime& rt, job what, teller tell,
                                     reverse_teller tell_reverse, cordma::connection conn);

}  // namespace perf
