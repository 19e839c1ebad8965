#pragma once

#include "job.hpp"
#include "methods.hpp"
#include "server_side.hpp"

#include <cordma/runtime/runtime.hpp>

#include <cstddef>
#include <cstdint>

namespace perf {

/// The client's side of a connection over XRC. The connection over RC beside it moves the
/// information of both, and later the credits.
struct xrc_route {
  /// Longest text of either side, with the number of the server's pool.
  static constexpr std::size_t greeting_bytes = 1024;

  cordma::connection initiator;
  std::uint32_t inbox = 0;  ///< Number of the server's pool.
};

/// Connects an initiator with the target of `serve_xrc`, which waits at the other end of `beside`.
/// The next receive there has `greeting_bytes`.
cordma::task<xrc_route> connect_xrc(cordma::runtime& rt, job what, cordma::connection& beside);
/// Takes the messages of an initiator, and returns credits on `beside`.
cordma::task<> serve_xrc(cordma::runtime& rt, job what, teller tell, cordma::connection beside);

}  // namespace perf
