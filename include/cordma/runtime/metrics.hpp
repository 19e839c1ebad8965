#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/datagram/datagram_socket.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/fixed_text.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/queue/completion.hpp>
#include <cordma/queue/transfer_counters.hpp>
#include <cordma/verbs/device.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace cordma {

class runtime;
class runtime_group;

/// Snapshot of what a runtime did since it was made, as sums that include destroyed queue pairs.
/// docs/metrics.md explains each number.
struct metrics {
  /// Counts a runtime's connections, from the end of their handshakes on.
  struct connection_counters {
    std::uint64_t made = 0;
    std::uint64_t lost = 0;  ///< Ended, and neither side had asked for it.
    std::uint64_t open = 0;  ///< Made and not ended, now.
  };

  /// Counts the leases of a runtime's connections, those that calls and messages carry included.
  struct lease_counters {
    std::uint64_t lent = 0;        ///< Leases that were prepared for peers.
    std::uint64_t borrowed = 0;    ///< Leases that peers granted.
    std::uint64_t refused = 0;     ///< Requests of peers that were refused.
    std::uint64_t expired = 0;     ///< Leases that a peer had not returned at their end.
    std::uint64_t open = 0;        ///< Lent, now.
    std::uint64_t open_bytes = 0;  ///< Bytes of these.
    std::uint64_t held = 0;        ///< Borrowed, now.
  };

  fixed_text<64> device;     ///< Name, as from `runtime::device_name`.
  unsigned port = 0;         ///< Port that `rnr` and `qkey_violations` belong to.
  const char* backend = "";  ///< Name of what waits for descriptors, as from `reactor::name`.
  transfer_counters transfer;
  completion_counters completions;
  executor_counters executor;
  mr_allocator_counters memory;
  datagram_counters datagrams;  ///< Counters of all sockets of datagrams.
  connection_counters connections;
  lease_counters leases;
  /// Counters of the port, of all programs of this machine.
  verbs::rnr_counters rnr;
  /// Datagrams with a wrong Q_Key that the port dropped (`qkey_viol_cntr` of ibv_query_port(3)), of
  /// all programs of this machine. Ends at 65535; none: the port cannot be asked.
  std::optional<std::uint32_t> qkey_violations;
};

/// The metrics of one runtime among several.
struct labelled_metrics {
  /// A further label of all samples, for example to tell the runtimes of a group apart.
  struct further_label {
    std::string_view name;   ///< Letters, digits and `_`; empty: no label.
    std::string_view value;  ///< Any text.
  };

  metrics values;
  further_label label{};
};

/// Formats the metrics of one runtime, or of several with different labels, in Prometheus' text
/// format, version 0.0.4 (`Content-Type: text/plain; version=0.0.4`).
/// \errors  errc::out_of_range: Prometheus does not allow a label's name (it begins with a digit or
///   with `__`), or cordma uses it: `device`, `port`, `kind`, `counter`, `backend`.
/// \thread any. \cost  about 13 KiB of text for each.
CORDMA_EXPORT std::string to_prometheus(std::span<const labelled_metrics> all);
CORDMA_EXPORT std::string to_prometheus(const metrics& one,
                                        labelled_metrics::further_label label = {});

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
  struct options {
    /// Lets other hosts read, which nothing authenticates. Without it the server listens only on
    /// loopback addresses and Unix sockets.
    bool insecure = false;
    /// Time of one connection, for its request and for reading the answer.
    time_span timeout = std::chrono::seconds{5};
  };
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
  ///   `local`, and it is not `options::insecure`; errc::not_supported: `local` is rdma_cm's, or
  ///   the runtime is on a simulated host; errc::limit_exceeded: `timeout`; EAGAIN: no more
  ///   threads. See also `executor`.
  metrics_server(const endpoint& local, page contents, const options& how);
  metrics_server(const endpoint& local, page contents)
      : metrics_server{local, std::move(contents), options{}} {}
  /// Serves `to_prometheus(of.metrics())`.
  metrics_server(const endpoint& local, runtime& of, const options& how);
  metrics_server(const endpoint& local, runtime& of) : metrics_server{local, of, options{}} {}
  /// Serves the metrics of all threads; the label `thread` has the thread's number.
  metrics_server(const endpoint& local, runtime_group& of, const options& how);
  metrics_server(const endpoint& local, runtime_group& of) : metrics_server{local, of, options{}} {}
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
