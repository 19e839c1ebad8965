#pragma once

#include "counters.hpp"
#include "datagrams.hpp"
#include "meter.hpp"
#include "methods.hpp"
#include "xrc.hpp"

#include <cordma/coro/semaphore.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/client.hpp>

#include <memory>

namespace perf {

/// The client's side of one connection that is measured, and the operations on it.
/// \thread the runtime's.
class link {
 public:
  static cordma::task<std::unique_ptr<link>> connect(cordma::runtime& rt, job what,
                                                     cordma::endpoint server);
  /// Takes a connection that nothing was sent on. Use `connect`.
  link(cordma::runtime& rt, const job& what, cordma::connection conn);

  /// The server's name for this connection.
  [[nodiscard]] std::uint32_t qpn() const noexcept { return qpn_; }
  /// The server is ready: before `run`.
  void learn(const remote_end& there);
  [[nodiscard]] const cordma::completion_queue_driver& driver() const noexcept { return driver_; }

  /// Operations, as many at once as the job's depth, until `m` takes no more. \errors theirs.
  cordma::task<> run(meter& m);
  /// Lends the memory to the server of a job in both directions, which begins its operations.
  cordma::task<> begin_reverse();
  /// Waits until the operations of the server have ended; those of an endless job end now.
  cordma::task<> end_reverse();
  cordma::task<> close();

 private:
  [[nodiscard]] cordma::local_mr_slice slot(std::uint32_t worker);
  [[nodiscard]] cordma::remote_mr_slice remote_slot(std::uint32_t worker) const;
  cordma::task<> run_worker(meter& m, std::uint32_t worker);
  cordma::task<> run_workers(meter& m);
  cordma::task<> send_each(meter& m, std::uint32_t worker);
  cordma::task<> call_each(meter& m, std::uint32_t worker);
  cordma::task<> exchange_each(meter& m, std::uint32_t worker);
  cordma::task<> take_credits();
  cordma::task<> take_late_credits();

  cordma::runtime& rt_;
  const job what_;
  std::uint32_t qpn_;
  const cordma::completion_queue_driver& driver_;
  cordma::local_mr memory_;
  cordma::remote_mr_slice remote_;
  // Only one of these three is used; datagrams have the connection beside them.
  cordma::connection conn_;
  cordma::message_stream stream_;
  cordma::rpc::client caller_;
  std::unique_ptr<datagram_end> datagrams_;
  cordma::local_mr greeting_;  ///< For `connect_xrc`.
  xrc_route route_;            ///< `xrc` has the connection beside it.
  cordma::semaphore credits_;  ///< Receives of the server's, for operations that use one.
};

}  // namespace perf
