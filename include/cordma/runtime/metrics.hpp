#pragma once

#include <cordma/datagram/datagram_socket.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/fixed_text.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/memory/mr_allocator.hpp>
#include <cordma/queue/completion.hpp>
#include <cordma/queue/transfer_counters.hpp>
#include <cordma/verbs/device.hpp>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace cordma {

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

}  // namespace cordma
