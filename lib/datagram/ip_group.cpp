#include "ip_group.hpp"

#include "base/descriptors.hpp"
#include "base/failures.hpp"

#include <arpa/inet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace cordma::detail {
namespace {

constexpr std::size_t at_mapped_ip4 = 12;  // In an IPv4-mapped address.

int join_ip4(int fd, const ibv_gid& mgid, std::uint32_t netdev_ifindex) noexcept {
  ip_mreqn wanted{};
  std::memcpy(&wanted.imr_multiaddr, &mgid.raw[at_mapped_ip4], sizeof wanted.imr_multiaddr);
  wanted.imr_ifindex = int(netdev_ifindex);
  return ::setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &wanted, sizeof wanted);
}

int join_ip6(int fd, const ibv_gid& mgid, std::uint32_t netdev_ifindex) noexcept {
  ipv6_mreq wanted{};
  std::memcpy(&wanted.ipv6mr_multiaddr, mgid.raw, sizeof wanted.ipv6mr_multiaddr);
  wanted.ipv6mr_interface = netdev_ifindex;
  return ::setsockopt(fd, IPPROTO_IPV6, IPV6_ADD_MEMBERSHIP, &wanted, sizeof wanted);
}

constexpr std::uint16_t full_member = 0x8000;  // P_Keys have this bit (IBTA 10.9.1.1).

/// An MGID of link-local scope, with P_Key and rdma_cm's signature of an IP version.
ibv_gid subnet_group(std::uint8_t signature, std::uint16_t pkey) noexcept {
  ibv_gid mgid{};
  mgid.raw[0] = 0xff;
  mgid.raw[1] = 0x12;
  mgid.raw[2] = signature;
  mgid.raw[3] = 0x01;
  const std::uint16_t on_wire = htons(pkey | full_member);
  std::memcpy(&mgid.raw[4], &on_wire, sizeof on_wire);
  return mgid;
}

ibv_gid mgid_of(const in_addr& ip4, verbs::gid_type type, std::uint16_t pkey) noexcept {
  ibv_gid mgid{};
  if (type == verbs::gid_type::ib) {
    constexpr std::uint32_t group_bits = 0x0fff'ffff;
    mgid = subnet_group(0x40, pkey);
    const std::uint32_t group = htonl(ntohl(ip4.s_addr) & group_bits);
    std::memcpy(&mgid.raw[at_mapped_ip4], &group, sizeof group);
    return mgid;
  }
  if (type == verbs::gid_type::roce_v1) {
    mgid.raw[0] = 0xff;
    mgid.raw[1] = 0x0e;  // A group of global scope.
  }
  mgid.raw[10] = mgid.raw[11] = 0xff;
  std::memcpy(&mgid.raw[at_mapped_ip4], &ip4, sizeof ip4);
  return mgid;
}

ibv_gid mgid_of(const in6_addr& ip6, verbs::gid_type type, std::uint16_t pkey) noexcept {
  ibv_gid mgid{};
  std::memcpy(mgid.raw, &ip6, sizeof mgid.raw);
  if (type != verbs::gid_type::ib) return mgid;
  constexpr std::size_t kept_from = 6;  // The last 80 bits name the group.
  const ibv_gid whole = mgid;
  mgid = subnet_group(0x60, pkey);
  std::memcpy(&mgid.raw[kept_from], &whole.raw[kept_from], sizeof mgid.raw - kept_from);
  return mgid;
}

[[noreturn]] void throw_cannot_join(int why, const ibv_gid& mgid, std::uint32_t netdev_ifindex) {
  char name[IF_NAMESIZE] = "";
  if (::if_indextoname(netdev_ifindex, name) == nullptr) name[0] = '?';
  throw_errno(why, "join",
              detail_text("IP group %s on network interface %s (%u)",
                          verbs::to_string(mgid).c_str(), name, netdev_ifindex));
}

}  // namespace

socket_address parse_ip_group(std::string_view text) {
  const std::string terminated{text.substr(0, INET6_ADDRSTRLEN)};
  sockaddr_in ip4{};
  ip4.sin_family = AF_INET;
  if (::inet_pton(AF_INET, terminated.c_str(), &ip4.sin_addr) == 1 &&
      IN_MULTICAST(ntohl(ip4.sin_addr.s_addr)))
    return {reinterpret_cast<const sockaddr*>(&ip4), sizeof ip4};
  sockaddr_in6 ip6{};
  ip6.sin6_family = AF_INET6;
  if (::inet_pton(AF_INET6, terminated.c_str(), &ip6.sin6_addr) == 1 &&
      IN6_IS_ADDR_MULTICAST(&ip6.sin6_addr))
    return {reinterpret_cast<const sockaddr*>(&ip6), sizeof ip6};
  throw_errno(EINVAL, "join",
              detail_text("\"%s\" is no IP multicast group; one is 224.0.0.0 to 239.255.255.255, "
                          "or begins with ff, as ff0e::1",
                          terminated.c_str()));
}

ibv_gid mgid_of(const socket_address& ip_group, verbs::gid_type type, std::uint16_t pkey) noexcept {
  return ip_group.is_ipv6()
             ? mgid_of(reinterpret_cast<const sockaddr_in6*>(ip_group.data())->sin6_addr, type,
                       pkey)
             : mgid_of(reinterpret_cast<const sockaddr_in*>(ip_group.data())->sin_addr, type, pkey);
}

bool is_mapped_ip4(const ibv_gid& gid) noexcept {
  in6_addr address;
  std::memcpy(&address, gid.raw, sizeof address);
  return IN6_IS_ADDR_V4MAPPED(&address);
}

bool is_multicast(const ibv_gid& gid) noexcept {
  constexpr std::uint8_t ip4_groups = 0xe0, ip4_prefix = 0xf0;
  return gid.raw[0] == 0xff ||
         (is_mapped_ip4(gid) && (gid.raw[at_mapped_ip4] & ip4_prefix) == ip4_groups);
}

unique_fd join_ip_group(const ibv_gid& mgid, std::uint32_t netdev_ifindex) {
  const bool is_ip4 = is_mapped_ip4(mgid);
  // The socket is bound to no port, and so receives nothing.
  unique_fd made{::socket(is_ip4 ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  if (!made.is_open()) throw_errno(errno, "socket", way_out_of_descriptors(errno));
  const int rc = is_ip4 ? join_ip4(made.get(), mgid, netdev_ifindex)
                        : join_ip6(made.get(), mgid, netdev_ifindex);
  if (rc != 0) throw_cannot_join(errno, mgid, netdev_ifindex);
  return made;
}

}  // namespace cordma::detail
