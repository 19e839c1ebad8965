#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

namespace cordma {

/// What a network may be told of a connection's packets. Both sides use the same values, whichever
/// side names them (docs/connecting.md).
///
/// A value that both sides must share fails the handshake with errc::incompatible_peer if they name
/// different ones; if one side names it, both use it. A value that a client proposes is used unless
/// the listener names another.
struct fabric_options {
  std::optional<std::uint8_t> service_level{};  ///< Shared, 0 to 15. Unset on both sides: 0.
  /// Path MTU, shared, at most the active MTU of both ports. Unset on both sides: the smaller one.
  std::optional<ibv_mtu> mtu{};
  // The next three are the GRH's: a route by LID, within one InfiniBand subnet, has none.
  std::optional<std::uint8_t> traffic_class{};  ///< Proposed; RoCE's DSCP and ECN. Unset: 0.
  std::optional<std::uint32_t> flow_label{};    ///< Proposed, 20 bits. Unset: 0.
  /// Proposed, 1 to 255. Unset: 64. On RoCE a kernel may take the route's instead.
  std::optional<std::uint8_t> hop_limit{};
  std::optional<ibv_rate> static_rate{};  ///< Proposed. Unset: IBV_RATE_MAX, the port's rate.
};

}  // namespace cordma
