#pragma once

#include "queue/datagram_header.hpp"

#include <cordma/datagram/datagram.hpp>

#include <cstdint>

namespace cordma::detail {

/// Returns the sender's address, for an answer. A datagram does not name the Q_Key of its sender,
/// so the address has the receiver's: peers mostly share one. RoCE v2 over IPv4 has an IPv4 header
/// in the last 20 bytes instead of a GRH. An Ethernet port has no LIDs, and its service levels are
/// the switch's affair. A source that names a group gives an empty address, which `check` refuses.
datagram_address sender_of(const datagram_header& header,
                           const datagram_address& receiver) noexcept;

/// Returns true if the datagram was sent to a multicast group.
bool is_multicast(const datagram_header& header) noexcept;

}  // namespace cordma::detail
