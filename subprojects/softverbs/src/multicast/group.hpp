#pragma once

#include <infiniband/verbs.h>
#include <sys/socket.h>

#include <cstdint>

namespace softverbs {

/// The destination of a datagram to a group.
inline constexpr std::uint32_t multicast_qpn = 0xffffff;

/// True for the two forms that the kernel accepts: an IPv6 multicast address (`ff...`), or a mapped
/// IPv4 one (`::ffff:224.0.0.0` and up). rdma_cm on RoCEv1 writes IPv4 groups as
/// `ff0e::ffff:a.b.c.d`.
[[nodiscard]] bool is_multicast(const union ibv_gid& gid) noexcept;

/// True if packets to the group have an IPv4 header, and the last four bytes are the IPv4 address.
[[nodiscard]] bool is_ip4_group(const union ibv_gid& group) noexcept;

/// The answer to a join by rdma_cm: the parameters of RDMA_CM_EVENT_MULTICAST_JOIN. The join itself
/// changes nothing: librdmacm attaches the queue pair of a full member, creates the address handle,
/// and detaches the queue pair when the program leaves.
struct group_join {
  union ibv_gid mgid;
  std::uint16_t mlid = 0;  ///< always: RoCE has no LIDs
  std::uint32_t qp_num = multicast_qpn;
  std::uint32_t qkey = 0;
  ibv_ah_attr path{};
};

/// The group of an address: AF_INET, AF_INET6, or AF_IB, which has the MGID itself. The kernel maps
/// IPv4 for RoCEv2 to `::ffff:a.b.c.d`. False: the address is no group.
[[nodiscard]] bool group_of(const sockaddr& address, union ibv_gid& mgid) noexcept;

/// Answers a join of the group by an identifier that is bound to `source` (IPv4 is mapped). A
/// `qkey` of 0 means the identifier has none: it gets that of RDMA_PS_UDP. Returns 0 or an errno
/// value: EINVAL if the MGID is no group, ENODEV if no GID of soft0 is the source.
int answer_join(const union ibv_gid& mgid, const union ibv_gid& source, std::uint32_t qkey,
                group_join& result) noexcept;

}  // namespace softverbs
