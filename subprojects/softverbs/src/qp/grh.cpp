#include "link/ip_address.hpp"
#include "node/gid_table.hpp"
#include "node/port.hpp"
#include "qp/data_path.hpp"

#include <arpa/inet.h>

#include <cstring>

namespace softverbs {
namespace {

constexpr std::uint32_t ip4_bytes = 20;
constexpr std::uint8_t protocol_udp = 17;
constexpr std::uint8_t protocol_iba = 0x1b;
/// The RoCE packet types, as numbered in CQEs of mlx5: RoCEv1 is 0.
constexpr std::uint8_t packet_type_ip6 = 1;
constexpr std::uint8_t packet_type_ip4 = 2;
constexpr std::uint32_t bth_deth_bytes =
    8 + 12 + 8;  // The other headers of a packet: UDP, BTH and DETH.

/// The GID of this host to which the datagram was sent.
ibv_gid destination_gid(const frame_header& header) noexcept {
  const int count = gid_count();
  for (int i = 0; i < count; ++i)
    if (const ibv_gid gid = gid_at(i); gid.global.interface_id == header.remote_address) return gid;
  return gid_at(0);
}

std::uint16_t ip4_checksum(const std::uint8_t (&header)[ip4_bytes]) noexcept {
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < ip4_bytes; i += 2)
    sum += static_cast<std::uint32_t>(header[i] << 8 | header[i + 1]);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<std::uint16_t>(~sum);
}

void put_16(std::uint8_t* at, std::uint32_t value) noexcept {
  at[0] = static_cast<std::uint8_t>(value >> 8);
  at[1] = static_cast<std::uint8_t>(value);
}

}  // namespace

bool has_grh(const frame_header& header) noexcept {
  return !is_infiniband() || header.hop_limit != 0;
}

std::uint8_t service_level(const frame_header& header) noexcept {
  if (is_infiniband())
    return static_cast<std::uint8_t>(header.class_and_flow >> service_level_shift);
  return is_mapped(header.source_gid) ? packet_type_ip4 : packet_type_ip6;
}

void write_grh(const frame_header& header, std::byte (&grh)[grh_bytes],
               const ibv_gid* group) noexcept {
  const ibv_gid to = group != nullptr ? *group : destination_gid(header);
  std::memset(grh, 0, grh_bytes);
  if (!is_infiniband() && is_mapped(header.source_gid)) {
    std::uint8_t ip[ip4_bytes]{};
    ip[0] = 0x45;
    ip[1] = static_cast<std::uint8_t>(header.class_and_flow >> 20);  // The type of service.
    put_16(&ip[2], ip4_bytes + bth_deth_bytes + header.message_bytes);
    ip[8] = header.hop_limit;
    ip[9] = protocol_udp;
    std::memcpy(&ip[12], &header.source_gid[12], 4);
    std::memcpy(&ip[16], &to.raw[12], 4);
    put_16(&ip[10], ip4_checksum(ip));
    std::memcpy(&grh[grh_bytes - ip4_bytes], ip, ip4_bytes);
    return;
  }
  ibv_grh ip{};
  ip.version_tclass_flow = htonl(6u << 28 | (header.class_and_flow & 0xfffffff));
  ip.paylen = htons(static_cast<std::uint16_t>(bth_deth_bytes + header.message_bytes));
  ip.next_hdr = is_infiniband() ? protocol_iba : protocol_udp;
  ip.hop_limit = header.hop_limit;
  std::memcpy(ip.sgid.raw, header.source_gid, sizeof ip.sgid.raw);
  ip.dgid = to;
  static_assert(sizeof ip == grh_bytes);
  std::memcpy(grh, &ip, grh_bytes);
}

}  // namespace softverbs
