#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/connection_options.hpp>
#include <cordma/connection/endpoint.hpp>
#include <cordma/detail/base/export.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace cordma {

/// Options of a group on one rank. Ranks may differ, unless it says otherwise.
struct group_options {
  /// Options of the connections between ranks: credentials, the fabric's. `receives_from`,
  /// `private_data`, `preposted` and `plain` are the group's own.
  connection_changes connections{};
  /// Where this rank listens for the others. Unset: the meeting says so, which is a free port of
  /// loopback if all ranks are on this host.
  std::optional<endpoint> listen{};
  /// Connects to all ranks in `join`; else to each when a message goes there.
  bool connect_at_once = false;
  /// Receive buffers of all connections together. Each connection is sure of 8 of them.
  std::uint32_t receive_buffers = 1024;
  /// Bytes of a receive buffer; all ranks have the same. A message that fits is sent at once, and
  /// copied. A longer one is written to its place when the receiver is ready.
  std::size_t buffer_bytes = 8192;
  /// How long `join` waits for the others.
  time_span join_timeout = std::chrono::seconds{60};
  /// An operation that waits for a rank ends if the rank's executor gives no sign of life for so
  /// long. A rank that dies is noticed earlier, mostly at once. A rank that has no connection yet
  /// may take as long as `connections.connect_timeout`. At least 10 ms.
  time_span silence_max = std::chrono::seconds{60};
  /// Changes of the table of algorithms, as CORDMA_COLLECTIVES has them: docs/collectives.md. All
  /// ranks must have the same.
  std::string algorithms{};
  /// Makes the result of each reduction depend on the number of ranks alone: not on lengths, hosts
  /// or algorithms. All ranks must have the same.
  bool reproducible = false;
  /// Names this host, for ranks that share one. Unset: the host's boot.
  std::optional<std::uint64_t> host{};
};

}  // namespace cordma
