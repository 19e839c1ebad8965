#pragma once

#include "handshake_set.hpp"

#include <cordma/connection/connection.hpp>
#include <cordma/io/socket_address.hpp>

#include <memory>

namespace cordma::detail {

/// A client of a listener, from its coming until it has a connection or was refused. The tasks end
/// before the object does.
class arrival {
 public:
  arrival() = default;
  arrival(arrival&&) = delete;
  virtual ~arrival() = default;

  [[nodiscard]] virtual client_host host() const noexcept = 0;
  /// Runs the whole handshake. \errors `error`: the client is to be refused.
  virtual task<connection> shake_hands() = 0;
  /// Tells the client why its handshake failed, and waits a bounded time until it has heard.
  virtual task<> refuse(failure why) = 0;
};

/// Where a listener's clients come in.
class door {
 public:
  door() = default;
  door(door&&) = delete;
  virtual ~door() = default;

  /// \errors an errno when the client cannot be taken now; it may be taken later. errc::closed,
  ///   errc::device_failed: no client will come any more.
  virtual task<std::unique_ptr<arrival>> accept() = 0;
  /// Refuses new clients. No `accept` may be waiting.
  virtual void close() noexcept = 0;
  [[nodiscard]] virtual socket_address local_address() const = 0;
};

}  // namespace cordma::detail
