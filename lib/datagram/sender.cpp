#include "sender.hpp"

#include "ip_group.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/ip.h>

#include <array>
#include <cstring>
#include <optional>

namespace cordma::detail {
namespace {

constexpr std::size_t at_ip4 = grh_bytes - sizeof(iphdr);
constexpr std::uint32_t ip4_words = 5, ip4_version = 4, ip6_version = 6;
constexpr std::uint8_t dscp_bits = 0xfc;  // Two more bits tell of congestion.
constexpr std::size_t at_source = 8, at_destination = 24;

bool has_right_sum(const iphdr& ip) noexcept {
  std::array<std::uint16_t, sizeof ip / 2> words;
  std::memcpy(words.data(), &ip, sizeof ip);
  std::uint32_t sum = 0;
  for (const std::uint16_t word : words) sum += word;
  sum = (sum & 0xffff) + (sum >> 16);
  return ((sum & 0xffff) + (sum >> 16)) == 0xffff;
}

/// Returns the IPv4 header, if there is one. A GRH begins with a 6. Bytes before an IPv4 header may
/// do so by chance: then its checksum decides, as in the kernel's ib_get_rdma_header_version.
std::optional<iphdr> ip4_in(const std::array<std::byte, grh_bytes>& grh) noexcept {
  iphdr ip;
  std::memcpy(&ip, &grh[at_ip4], sizeof ip);
  const bool may_be_grh = std::to_integer<std::uint32_t>(grh[0]) >> 4 == ip6_version;
  if (ip.version != ip4_version || ip.ihl != ip4_words) return std::nullopt;
  return may_be_grh && !has_right_sum(ip) ? std::nullopt : std::optional{ip};
}

ibv_gid gid_of(std::uint32_t ip4) noexcept {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  std::memcpy(&gid.raw[12], &ip4, sizeof ip4);
  return gid;
}

ibv_gid gid_at(const std::byte* at) noexcept {
  ibv_gid gid{};
  std::memcpy(gid.raw, at, sizeof gid.raw);
  return gid;
}

datagram_address said_sender_of(const datagram_header& header,
                                const datagram_address& receiver) noexcept {
  datagram_address sender;
  sender.qpn = header.src_qpn;
  sender.qkey = receiver.qkey;
  if (receiver.path.lid != 0) {
    sender.path.lid = header.slid;
    sender.path.service_level = header.service_level;
  }
  sender.path.is_global = header.has_grh;
  if (!header.has_grh) return sender;
  if (const auto ip4 = ip4_in(header.grh)) {
    sender.path.gid = gid_of(ip4->saddr);
    sender.path.traffic_class = ip4->tos & dscp_bits;
    return sender;
  }
  sender.path.gid = gid_at(&header.grh[at_source]);
  const auto high = std::to_integer<unsigned>(header.grh[0] & std::byte{0xf});
  sender.path.traffic_class =
      std::uint8_t(high << 4 | std::to_integer<unsigned>(header.grh[1]) >> 4) & dscp_bits;
  return sender;
}

}  // namespace

datagram_address sender_of(const datagram_header& header,
                           const datagram_address& receiver) noexcept {
  const datagram_address said = said_sender_of(header, receiver);
  // An answer to a group that somebody named as the source would go to all of its members.
  const bool is_group = said.qpn >= datagram_address::multicast_qpn || is_multicast(said.path.gid);
  return is_group ? datagram_address{} : said;
}

bool is_multicast(const datagram_header& header) noexcept {
  if (!header.has_grh) return false;
  if (const auto ip4 = ip4_in(header.grh)) return IN_MULTICAST(ntohl(ip4->daddr));
  return header.grh[at_destination] == std::byte{0xff};
}

}  // namespace cordma::detail
