#include "multicast/group.hpp"

#include "link/ip_address.hpp"
#include "node/gid_table.hpp"

#include <netinet/in.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace softverbs {

namespace {

constexpr std::uint8_t roce_v1_prefix[12] = {0xff, 0x0e, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr std::uint32_t default_qkey = 0x01234567;  // RDMA_UDP_QKEY
constexpr std::uint8_t ip4_hop_limit = 64;
constexpr std::uint8_t ip6_hop_limit = 1;
constexpr sa_family_t af_ib = 27;
constexpr std::size_t ib_address_at = 8;  // sockaddr_ib::sib_addr

bool has_prefix(const ibv_gid& gid, const std::uint8_t (&prefix)[12]) noexcept {
  return std::memcmp(gid.raw, prefix, sizeof prefix) == 0;
}

}  // namespace

bool is_multicast(const ibv_gid& gid) noexcept {
  return gid.raw[0] == 0xff || (is_mapped(gid) && (gid.raw[12] & 0xf0) == 0xe0);
}

bool is_ip4_group(const ibv_gid& group) noexcept {
  return is_mapped(group) || has_prefix(group, roce_v1_prefix);
}

bool group_of(const sockaddr& address, ibv_gid& mgid) noexcept {
  mgid = {};
  switch (address.sa_family) {
    case AF_INET:
      std::memcpy(mgid.raw, mapped_prefix, sizeof mapped_prefix);
      std::memcpy(mgid.raw + sizeof mapped_prefix,
                  &reinterpret_cast<const sockaddr_in&>(address).sin_addr, sizeof(in_addr));
      break;
    case AF_INET6:
      std::memcpy(&mgid, &reinterpret_cast<const sockaddr_in6&>(address).sin6_addr, sizeof mgid);
      break;
    case af_ib:
      std::memcpy(&mgid, reinterpret_cast<const std::byte*>(&address) + ib_address_at, sizeof mgid);
      break;
    default: return false;
  }
  return is_multicast(mgid);
}

int answer_join(const ibv_gid& mgid, const ibv_gid& source, std::uint32_t qkey,
                group_join& result) noexcept {
  if (!is_multicast(mgid)) return EINVAL;
  result = {};
  result.mgid = mgid;
  result.qkey = qkey != 0 ? qkey : default_qkey;
  result.path.is_global = 1;
  result.path.port_num = 1;
  result.path.grh.dgid = mgid;
  result.path.grh.hop_limit = is_ip4_group(mgid) ? ip4_hop_limit : ip6_hop_limit;
  for (int index = 0; index < gid_count(); ++index) {
    const ibv_gid own = gid_at(index);
    if (std::memcmp(&own, &source, sizeof own) != 0) continue;
    result.path.grh.sgid_index = static_cast<std::uint8_t>(index);
    return 0;
  }
  return ENODEV;
}

}  // namespace softverbs
