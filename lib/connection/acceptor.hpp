#pragma once

#include "handshake_set.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/io/socket_address.hpp>
#include "connection/connection_resources.hpp"

#include <memory>

namespace cordma::detail {

/// The parts and options of a client's connection, and the program's decision on the client.
struct handshake_terms {
  connection_resources resources;
  connection_options options;
  admission admit;
};

/// A client of a listener, from its coming until it has a connection or was refused. The tasks end
/// before the object does. \thread that of the runtime which accepted it, or which it moved to.
class arrival {
 public:
  explicit arrival(const socket_address& from) noexcept : peer{from} {}
  arrival(arrival&&) = delete;
  virtual ~arrival() = default;

  const socket_address peer;

  /// Returns whether a runtime has the device that the client has come to.
  [[nodiscard]] virtual bool may_move_to(const connection_resources& other) const noexcept = 0;
  /// Lets another runtime of the process shake hands, on its thread. \errors `error`.
  virtual void move_to(const connection_resources& other) = 0;
  /// Runs the whole handshake. `terms` outlive the task. \errors `error`: the client is to be
  /// refused.
  virtual task<connection> shake_hands(const handshake_terms& terms) = 0;
  /// Tells the client why its handshake failed, and waits a bounded time until it has heard.
  virtual task<> refuse(failure why) = 0;
};

/// Where a listener's clients come in. \thread the executor's that it is made with.
class acceptor {
 public:
  acceptor() = default;
  acceptor(acceptor&&) = delete;
  virtual ~acceptor() = default;

  /// \errors an errno when the client cannot be taken now; it may be taken later. errc::closed,
  ///   errc::device_failed: no client will come any more.
  virtual task<std::unique_ptr<arrival>> accept() = 0;
  /// Refuses new clients. No `accept` may be waiting.
  virtual void close() noexcept = 0;
  [[nodiscard]] virtual socket_address local_address() const = 0;
};

/// Listens on `local`, by rdma_cm or on a socket. \errors as `stream_listener`, `cm::listener` and
///   `cm::event_channel`.
std::unique_ptr<acceptor> open_acceptor(const connection_resources& resources,
                                        endpoint::bootstrap kind, const socket_address& local,
                                        int backlog);

}  // namespace cordma::detail
