#pragma once

#include "connection_state.hpp"

#include "connection/handshake.hpp"
#include "io/host_calls.hpp"

namespace cordma::detail {

/// Checks that the GID in the peer's hello is the address that its bootstrap comes from. A peer
/// must not have the device send to another host. Of a peer on this host, an address of this host.
/// InfiniBand's own GIDs are no addresses, and pass. Where a foreign GID is allowed, waits until
/// the kernel knows the way there. \errors errc::refused: names both; as `gid_resolver::resolve`.
task<> admit_peer_gid(connection_state& state, const handshake::hello& theirs);

/// Returns true if an interface of the host has the address. \errors as
/// `host_calls::own_addresses`.
bool is_own_address(host_calls& host, const ibv_gid& gid);

}  // namespace cordma::detail
