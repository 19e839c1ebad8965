#pragma once

#include <cordma/connection/connection.hpp>
#include <cordma/connection/handshake_server.hpp>

#include <memory>

namespace cordma {

namespace detail {
class listener_state;
}

/// Listens for connections. Handshakes go on in the background, side by side, whether or not
/// somebody accepts; the bounds are in `listener_options`. Move-only. Dropping or closing it ends
/// those who wait with `errc::closed`, and the handshakes under way; connections that were accepted
/// live on. Thread: the executor's.
class listener {
 public:
  /// `local.host` is a numeric address or a name; empty: loopback. Port 0: the kernel chooses.
  /// \errors  EADDRINUSE, EADDRNOTAVAIL, EACCES: the detail names the address and the way out;
  ///   errc::limit_exceeded; what `check(connection_options)` throws.
  listener(connection_resources resources, const endpoint& local,
           const connection_options& options = {}, const listener_options& limits = {});
  listener(listener&& other) noexcept;
  listener& operator=(listener&& other) noexcept;
  ~listener();

  /// The next connection, in the order in which handshakes ended. \errors errc::closed.
  task<connection> accept();
  void close() noexcept;

  [[nodiscard]] endpoint local_endpoint() const;
  [[nodiscard]] const listener_counters& counters() const noexcept;
  [[nodiscard]] const std::optional<failure>& last_rejection() const noexcept;

 private:
  void drop() noexcept;

  std::unique_ptr<detail::listener_state> state_;
};

}  // namespace cordma
