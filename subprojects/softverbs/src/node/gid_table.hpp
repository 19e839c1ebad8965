#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

namespace softverbs {

inline constexpr int gids_max = 64;

/// The RoCEv2 GID table of this host, read at the first call: the addresses of interfaces that are
/// up. IPv4 comes first, so that index 0 reaches other hosts; then IPv6, with link-local addresses
/// last; each in the order of the interfaces. 127.0.0.1 is always the last entry. An InfiniBand
/// port has one GID: port_gid() (node/port.hpp).
[[nodiscard]] int gid_count() noexcept;
[[nodiscard]] union ibv_gid gid_at(int index) noexcept;  ///< zero beyond the count

/// The index of a GID in the table; all loopback addresses count as 127.0.0.1. Below zero: the
/// table does not have it.
[[nodiscard]] int gid_index(const union ibv_gid& own) noexcept;

/// The first IPv4 address of this host in host order; 127.0.0.1 if there is no other.
[[nodiscard]] std::uint32_t first_ip4_address() noexcept;

/// True if the address belongs to this host: loopback, in the table, or newer (the call then asks
/// the system). All zero counts as ours.
[[nodiscard]] bool is_own_address(const union ibv_gid& gid) noexcept;

/// The addresses of interfaces that are up now, without loopback; asks the system. Empty: it
/// failed. \errors std::bad_alloc.
[[nodiscard]] std::vector<union ibv_gid> interface_addresses();

}  // namespace softverbs
