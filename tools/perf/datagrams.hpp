#pragma once

#include "job.hpp"
#include "meter.hpp"
#include "methods.hpp"
#include "server_side.hpp"

#include <cordma/runtime/runtime.hpp>

#include <vector>

namespace perf {

/// The client's socket of a job of datagrams. Each operation is one datagram to the server and one
/// back. \thread the runtime's.
class datagram_end {
 public:
  datagram_end(cordma::runtime& rt, const job& what, const remote_end& there);

  /// Operations, one after another, until `m` takes no more.
  cordma::task<> exchange_each(meter& m, cordma::local_mr_slice said);
  /// Fails if no operation ends for seconds: a datagram was lost, and nothing repeats it.
  cordma::task<> watch(const meter& m);
  /// Finds the route to the server, and joins its group, if it has one. Idempotent.
  cordma::task<> prepare();

 private:
  cordma::runtime& rt_;
  const cordma::datagram_address server_;
  cordma::datagram_socket socket_;
  cordma::local_mr buffers_;
  cordma::multicast_membership group_;
  bool is_prepared_ = false;
};

/// Returns a group of the version of IP of a port's own address, with a random number.
ibv_gid make_group(const ibv_gid& own);

/// The server's side: gives each datagram back, until the client ends the connection beside.
cordma::task<> serve_datagrams(cordma::runtime& rt, job what, const teller& tell,
                               cordma::connection conn);

}  // namespace perf
