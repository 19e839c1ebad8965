#pragma once

#include <cordma/base/unique_fd.hpp>
#include <cordma/io/socket_address.hpp>
#include <cordma/verbs/gid.hpp>

#include <cstdint>
#include <string_view>

namespace cordma::detail {

/// Reads the address of an IP multicast group: "239.1.2.3", "ff0e::1".
/// \errors EINVAL: no address of a group; the detail has the text.
socket_address parse_ip_group(std::string_view text);

/// Returns the MGID to which rdma_cm maps an IP group. RoCE v2 keeps IPv6, and maps IPv4. RoCE v1
/// has IPv4 below ff0e. On InfiniBand MGIDs are those of RFC 4391, with the signature of rdma_cm.
ibv_gid mgid_of(const socket_address& ip_group, verbs::gid_type type,
                std::uint16_t pkey = 0xffff) noexcept;
/// Returns true for MGIDs, IPv4 groups that are mapped included.
bool is_multicast(const ibv_gid& gid) noexcept;
bool is_mapped_ip4(const ibv_gid& gid) noexcept;

/// Makes this host a member of the IP group of `mgid` on a network interface, until the descriptor
/// is closed. Switches and the kernel let packets of the group through meanwhile.
/// \errors an errno of setsockopt(2): the detail names group and interface. EMFILE.
unique_fd join_ip_group(const ibv_gid& mgid, std::uint32_t netdev_ifindex);

}  // namespace cordma::detail
