#pragma once

#include <cordma/connection/listener.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>

#include <exception>
#include <string>

namespace cordma {

/// Handles one connection; the calls for several connections run side by side. A coroutine lambda
/// with captures is allowed: `serve` keeps it.
using connection_task = callback<task<>(connection conn)>;

/// The failure of one connection's handler.
struct CORDMA_EXPORT handler_failure {
  socket_address peer;
  std::exception_ptr why;

  /// Returns a text that names the peer: "127.0.0.1:4711: ibv_poll_cq(qp 0x1a2): …".
  [[nodiscard]] std::string to_string() const;
};

/// Called for each handler that threw, except `cancelled`. The hook must not throw.
using failure_hook = callback<void(const handler_failure& failed)>;

/// Accepts and handles connections until it is stopped, or `acceptor` is closed, and until their
/// handlers have ended. A stop is passed on to the handlers; a closed listener lets them finish. A
/// handler that throws ends its own connection, and no other; `on_failure` is then called, if there
/// is one.
///
///     const auto handle = [&](connection conn) -> task<> { … };
///     co_await serve(listener, handle, [](const handler_failure& f) {
///       std::cerr << f.to_string() << '\n';
///     });
///
/// On several cores: `runtime_group::serve`.
/// \param connections_max  handlers at once, 1 to 2^20; others wait to be accepted.
/// \errors errc::limit_exceeded: `connections_max`. What `listener::accept` throws, but `closed`.
/// \thread that of `acceptor`, which outlives it.
CORDMA_EXPORT task<> serve(listener& acceptor, connection_task handler,
                           failure_hook on_failure = {}, unsigned connections_max = 1024);

}  // namespace cordma
