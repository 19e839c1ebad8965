#include "sender.hpp"

#include "ip_group.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include <array>
#include <cstddef>
#include <cstring>

namespace cordma::detail {
namespace {

constexpr std::size_t at_ip4 = grh_bytes - sizeof(iphdr);
constexpr std::byte ip4_version_and_words{0x45}, ip6_version{6};
constexpr std::uint8_t dscp_bits = 0xfc;  // Two more bits tell of congestion.
constexpr std::size_t at_source = 8, at_destination = 24;

bool has_right_sum(const std::byte* ip4) noexcept {
  std::array<std::uint16_t, sizeof(iphdr) / 2> words;
  std::memcpy(words.data(), ip4, sizeof words);
  std::uint32_t sum = 0;
  for (const std::uint16_t word : words) sum += word;
  sum = (sum & 0xffff) + (sum >> 16);
  return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

/// Returns true if there is an IPv4 header. A GRH begins with a 6. Bytes before an IPv4 header may
/// do so by chance: then its checksum decides, as in the kernel's ib_get_rdma_header_version.
bool has_ip4(const std::array<std::byte, grh_bytes>& grh) noexcept {
  if (grh[at_ip4] != ip4_version_and_words) return false;
  return (grh[0] >> 4) != ip6_version || has_right_sum(&grh[at_ip4]);
}

std::uint32_t ip4_at(const std::byte* at) noexcept {
  std::uint32_t ip4;
  std::memcpy(&ip4, at, sizeof ip4);
  return ip4;
}

ibv_gid gid_of(std::uint32_t ip4) noexcept {
  const std::array<std::uint32_t, 4> words{0, 0, htonl(0xffff), ip4};
  ibv_gid gid;
  std::memcpy(gid.raw, words.data(), sizeof gid.raw);
  return gid;
}

/// Sets GID and traffic class of the path to the source.
void set_source(const std::array<std::byte, grh_bytes>& grh, verbs::address_vector& path) noexcept {
  if (has_ip4(grh)) {
    path.gid = gid_of(ip4_at(&grh[at_ip4 + offsetof(iphdr, saddr)]));
    path.traffic_class =
        std::to_integer<std::uint8_t>(grh[at_ip4 + offsetof(iphdr, tos)]) & dscp_bits;
    return;
  }
  std::memcpy(path.gid.raw, &grh[at_source], sizeof path.gid.raw);
  const auto high = std::to_integer<unsigned>(grh[0] & std::byte{0xf});
  path.traffic_class = std::uint8_t(high << 4 | std::to_integer<unsigned>(grh[1]) >> 4) & dscp_bits;
}

}  // namespace

datagram_address sender_of(const datagram_header& header,
                           const datagram_address& receiver) noexcept {
  datagram_address sender;
  sender.qpn = header.src_qpn;
  sender.qkey = receiver.qkey;
  if (receiver.path.lid != 0) {
    sender.path.lid = header.slid;
    sender.path.service_level = header.service_level;
  }
  sender.path.is_global = header.has_grh;
  if (header.has_grh) set_source(header.grh, sender.path);
  // An answer to a group that somebody named as the source would go to all of its members.
  if (sender.qpn >= datagram_address::multicast_qpn || is_multicast(sender.path.gid)) [[unlikely]]
    sender = {};
  return sender;
}

bool is_multicast(const datagram_header& header) noexcept {
  if (!header.has_grh) return false;
  if (has_ip4(header.grh))
    return IN_MULTICAST(ntohl(ip4_at(&header.grh[at_ip4 + offsetof(iphdr, daddr)])));
  return header.grh[at_destination] == std::byte{0xff};
}

}  // namespace cordma::detail
