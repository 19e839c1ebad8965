#pragma once

#include <cordma/agent/agent_options.hpp>
#include <cordma/base/time.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/io/socket_address.hpp>
#include <cordma/security/credentials.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cordma {

class executor;
struct connection_resources;

namespace detail {
class listener_state;
}

/// A client that wants a connection, before it gets one.
class CORDMA_EXPORT connection_request {
 public:
  /// Makes what an `admission` is shown.
  connection_request(const socket_address& client, identity client_identity)
      : peer{client}, peer_identity{std::move(client_identity)} {}

  /// Refuses the client, which is told `reason` (at most 200 bytes of it); its `connect` fails with
  /// errc::refused.
  void refuse(std::string_view reason) { refusal_ = reason.empty() ? "no reason given" : reason; }
  /// Returns the reason of a refusal; empty: none.
  [[nodiscard]] const std::string& refusal() const noexcept { return refusal_; }

  socket_address peer;
  identity peer_identity;  ///< The identity that the client has proved.
  /// The client's `connection_options::private_data`.
  std::array<std::byte, 64> private_data{};
  /// This side's answer, which `connection::peer_private_data` gives the client. Initially this
  /// side's `connection_options::private_data`.
  std::array<std::byte, 64> reply{};
  /// Limits of what this connection's agent lends. Initially those of the options, which decide on
  /// `isolation_min`, `isolation_max` and `zero_based`. A value out of range refuses the client.
  lending_policy lending{};

 private:
  std::string refusal_;
};

/// Decides on each client whose hello has come, and may change what the client gets. A function
/// that throws, whatever it is, refuses the client, with the text of a std::exception. \thread the
/// one that makes the connection.
using admission = callback<void(connection_request& request)>;

struct listener_options {
  /// Handshakes in progress at once; 1 to `handshakes_limit`. A further client takes the place of
  /// the oldest handshake of the host that has most, once that has used up a tenth of
  /// `handshake_timeout`. Refused clients that have not read why go first. A handshake that
  /// succeeded keeps its place until the connection is accepted: when all are such, clients wait.
  /// docs/security.md has the reasons.
  unsigned handshakes_max = 64;
  /// Deadline of one handshake; a slower client is refused.
  time_span handshake_timeout = std::chrono::seconds{5};
  /// Ready connections that nobody has accepted yet; 1 to `ready_limit`.
  unsigned ready_max = 128;
  int tcp_backlog = 128;
  /// Decides on each client; none: all may connect.
  admission admit{};

  static constexpr unsigned handshakes_limit = 4096;
  static constexpr unsigned ready_limit = 65536;
};

struct listener_counters {
  std::uint64_t completed = 0;      ///< Handshakes that succeeded.
  std::uint64_t rejected = 0;       ///< Handshakes that failed.
  std::uint64_t dropped = 0;        ///< Handshakes that gave their place to a newer client.
  std::uint64_t accept_errors = 0;  ///< Failures of accept(2): mostly no descriptor was left.
};

/// Listens for connections. Handshakes run in the background, side by side, even if nobody accepts;
/// `listener_options` has the bounds. Move-only. Dropping or closing the listener ends waits with
/// `errc::closed`, stops the handshakes in progress, and frees the port at once. Accepted
/// connections live on. \thread the executor's.
class CORDMA_EXPORT listener {
 public:
  class close_op;

  /// Listens on `local`, whose `host` is a numeric address or a name; empty: loopback. Port 0: the
  /// kernel chooses.
  /// \errors  EADDRINUSE, EADDRNOTAVAIL, EACCES: the detail names the address and the way out;
  ///   errc::limit_exceeded: an option; errc::not_authenticated: strangers can reach `local`, and
  ///   `options` have neither credentials nor `insecure`.
  listener(connection_resources resources, const endpoint& local,
           const connection_options& options = {}, const listener_options& limits = {});

  /// Gives the next connection, in the order in which handshakes ended. One that has ended before
  /// it was accepted is left out, even if its client sent messages, and closed: let clients wait
  /// for an answer. A stop that comes just when there is one drops it. \errors errc::closed;
  /// errc::device_failed: by rdma_cm, the device that it listened on is gone, and the listener is
  /// closed.
  task<connection> accept();
  /// Closes the listener now: the next client is refused, and the next `listen` may take the port.
  /// Await the result to learn that the handshakes in progress have ended. Idempotent.
  close_op close() noexcept;

  [[nodiscard]] cordma::executor& executor() const noexcept;
  [[nodiscard]] endpoint local_endpoint() const;
  [[nodiscard]] const listener_counters& counters() const noexcept;
  [[nodiscard]] const std::optional<failure>& last_rejection() const noexcept;

 private:
  struct dropper {
    void operator()(detail::listener_state* state) const noexcept;
  };

  std::unique_ptr<detail::listener_state, dropper> state_;
};

/// Ends when a closed listener's handshakes have ended. Awaiting it is optional. Once a task awaits
/// it, the listener may be dropped.
class listener::close_op : public event::wait_op {
 private:
  friend class listener;
  explicit close_op(event& all_ended) noexcept : wait_op{all_ended.wait()} {}
};

/// The failure of one connection's handler.
struct CORDMA_EXPORT handler_failure {
  socket_address peer;
  std::exception_ptr why;

  /// Returns a text that names the peer: "127.0.0.1:4711: ibv_poll_cq(qp 0x1a2): …".
  [[nodiscard]] std::string to_string() const;
};

/// Accepts and handles connections until it is stopped, or `acceptor` is closed, and until their
/// handlers have ended. A stop is passed on to the handlers; a closed listener lets them finish. A
/// handler that throws ends its own connection, and no other; `on_failure` is then called, if there
/// is one, but not for `cancelled`. It must not throw.
///
///     const auto handle = [&](connection conn) -> task<> { … };
///     co_await serve(listener, handle, [](const handler_failure& f) {
///       std::cerr << f.to_string() << '\n';
///     });
///
/// On several cores: `runtime_group::serve`.
/// \param handler  is called for each connection. A coroutine lambda with captures is allowed.
/// \param connections_max  handlers at once, 1 to 2^20; others wait to be accepted.
/// \errors errc::limit_exceeded: `connections_max`. What `listener::accept` throws, but `closed`.
/// \thread that of `acceptor`, which outlives it.
CORDMA_EXPORT task<> serve(listener& acceptor, callback<task<>(connection conn)> handler,
                           callback<void(const handler_failure& failed)> on_failure = {},
                           unsigned connections_max = 1024);

}  // namespace cordma
