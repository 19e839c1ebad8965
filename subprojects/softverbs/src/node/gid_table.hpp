#pragma once

#include <infiniband/verbs.h>

namespace softverbs {

inline constexpr int gids_max = 64;

/// The RoCEv2 GID table of this host, read at the first call: addresses of interfaces that are up,
/// IPv4 ones first (so that index 0 reaches other hosts, where there is a network), then IPv6,
/// link-local ones last of these, each in the order of the interfaces; 127.0.0.1, always there, is
/// the last.
[[nodiscard]] int gid_count() noexcept;
[[nodiscard]] union ibv_gid gid_at(int index) noexcept;  ///< zero beyond the count

/// Whether an address is this host's: a loopback one, one of the table, or one that came since
/// (this asks the system then). All zero counts as ours.
[[nodiscard]] bool is_own_address(const union ibv_gid& gid) noexcept;

}  // namespace softverbs
