#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace softverbs {

/// The destination of a datagram to a group.
inline constexpr std::uint32_t multicast_qpn = 0xffffff;

/// True for the two forms that the kernel accepts: an IPv6 multicast address (`ff...`), or a mapped
/// IPv4 one (`::ffff:224.0.0.0` and up). rdma_cm on RoCEv1 writes IPv4 groups as
/// `ff0e::ffff:a.b.c.d`.
[[nodiscard]] bool is_multicast(const union ibv_gid& gid) noexcept;

}  // namespace softverbs
