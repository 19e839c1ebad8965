#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

inline constexpr int gids_max = 64;

/// The RoCEv2 GID table of this host, read at the first call: the addresses of interfaces that are
/// up. IPv4 comes first, so that index 0 reaches other hosts; then IPv6, with link-local addresses
/// last; each in the order of the interfaces. 127.0.0.1 is always the last entry.
[[nodiscard]] int gid_count() noexcept;
[[nodiscard]] union ibv_gid gid_at(int index) noexcept;  ///< zero beyond the count

/// True if the address belongs to this host: loopback, in the table, or newer (the call then asks
/// the system). All zero counts as ours.
[[nodiscard]] bool is_own_address(const union ibv_gid& gid) noexcept;

}  // namespace softverbs
