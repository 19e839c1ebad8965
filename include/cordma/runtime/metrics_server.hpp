#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace cordma {

class runtime;
class runtime_group;

struct metrics_server_options {
  /// Lets other hosts read, which nothing authenticates. Without it the server listens only on
  /// loopback addresses and Unix sockets.
  bool insecure = false;
  /// Time of one connection, for its request and for reading the answer.
  time_span timeout = std::chrono::seconds{5};
};

/// Serves metrics over HTTP: `GET /metrics` gives the page, as Prometheus reads it.
///
///     cordma::metrics_server page{"127.0.0.1:9464", rt};
///
/// One thread of its own does all work, so that a slow client costs the runtimes nothing. Of more
/// than `connections_max` clients the oldest is dropped. What is served outlives the server.
/// docs/metrics.md says who can read: at an abstract Unix name only processes of this user, and
/// root's.
/// \thread any.
class CORDMA_EXPORT metrics_server {
 public:
  /// Makes a page, on the server's thread. A page that throws is answered with status 500.
  using page = callback<std::string()>;
  struct counts {
    std::uint64_t served = 0;   ///< Pages that were sent.
    std::uint64_t refused = 0;  ///< Requests for anything else, or of other users.
    /// Connections that were slow or silent, gave way to newer ones, or broke.
    std::uint64_t dropped = 0;
  };

  static constexpr std::size_t request_bytes_max = 8192;
  static constexpr unsigned connections_max = 32;

  /// Listens on `local`, with port 0 on any free one, and starts the thread.
  /// \errors  EADDRINUSE, EACCES and others of bind(2); errc::not_authenticated: other hosts reach
  ///   `local`, and `options` are not `insecure`; errc::not_supported: `local` is rdma_cm's, or the
  ///   runtime is on a simulated host; errc::limit_exceeded: `timeout`; EAGAIN: no more threads.
  ///   See also `executor`.
  metrics_server(const endpoint& local, page contents, const metrics_server_options& options = {});
  /// Serves `to_prometheus(of.metrics())`.
  metrics_server(const endpoint& local, runtime& of, const metrics_server_options& options = {});
  /// Serves the metrics of all threads; the label `thread` has the thread's number.
  metrics_server(const endpoint& local, runtime_group& of,
                 const metrics_server_options& options = {});
  metrics_server(metrics_server&&) = delete;
  /// Ends all connections, and waits for a page that is being made.
  ~metrics_server();

  [[nodiscard]] const endpoint& local_endpoint() const noexcept;
  [[nodiscard]] counts counters() const noexcept;

 private:
  struct state;
  const std::unique_ptr<state> state_;
};

}  // namespace cordma
