#include "datagram/sender.hpp"

#include "datagram/datagram_address.hpp"

#include <arpa/inet.h>
#include <netinet/ip.h>

#include <catch2/catch.hpp>

#include <cstring>

using namespace cordma;
using detail::datagram_header;

namespace {

const datagram_address on_ethernet = datagram_address::parse("qpn=1,qkey=0x11,gid=fe80::9");
const datagram_address on_infiniband = datagram_address::parse("qpn=1,qkey=0x11,lid=5");

/// The header of an IPv4 packet, with its checksum.
iphdr ip4(const char* from, const char* to) {
  iphdr ip{};
  ip.version = 4;
  ip.ihl = 5;
  ip.tos = 104;
  ip.ttl = 64;
  ip.protocol = 17;
  REQUIRE(::inet_pton(AF_INET, from, &ip.saddr) == 1);
  REQUIRE(::inet_pton(AF_INET, to, &ip.daddr) == 1);
  std::uint16_t words[10];
  std::memcpy(words, &ip, sizeof ip);
  std::uint32_t sum = 0;
  for (const std::uint16_t word : words) sum += word;
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  ip.check = std::uint16_t(~sum);
  return ip;
}

datagram_header header_of(const iphdr& ip) {
  datagram_header header{.src_qpn = 17, .has_grh = true};
  std::memcpy(&header.grh[20], &ip, sizeof ip);
  return header;
}

datagram_header header_of(const char* from, const char* to) {
  ibv_grh grh{};
  grh.version_tclass_flow = htonl(6u << 28 | 104u << 20);
  REQUIRE(::inet_pton(AF_INET6, from, grh.sgid.raw) == 1);
  REQUIRE(::inet_pton(AF_INET6, to, grh.dgid.raw) == 1);
  datagram_header header{.src_qpn = 17, .slid = 9, .service_level = 3, .has_grh = true};
  std::memcpy(header.grh.data(), &grh, sizeof grh);
  return header;
}

}  // namespace

TEST_CASE("the sender of a datagram over IPv4 is its source address", "[datagram]") {
  const datagram_header header = header_of(ip4("10.0.0.1", "10.0.0.2"));
  CHECK(sender_of(header, on_ethernet).to_string() ==
        "qpn=17,qkey=0x11,gid=::ffff:10.0.0.1,tc=104");
  CHECK_FALSE(is_multicast(header));
  CHECK(is_multicast(header_of(ip4("10.0.0.1", "239.1.2.3"))));
}

TEST_CASE("the sender of a datagram with a GRH is its source GID, on InfiniBand with its LID",
          "[datagram]") {
  const datagram_header header = header_of("fe80::1", "fe80::2");
  CHECK(sender_of(header, on_ethernet).to_string() == "qpn=17,qkey=0x11,gid=fe80::1,tc=104");
  CHECK(sender_of(header, on_infiniband).to_string() ==
        "qpn=17,qkey=0x11,gid=fe80::1,lid=9,sl=3,tc=104");
  CHECK_FALSE(is_multicast(header));
  CHECK(is_multicast(header_of("fe80::1", "ff12::2")));
}

TEST_CASE("the sender of a datagram without a GRH is its source LID", "[datagram]") {
  const datagram_header header{.src_qpn = 17, .slid = 9};
  CHECK(sender_of(header, on_infiniband).to_string() == "qpn=17,qkey=0x11,lid=9");
  CHECK_FALSE(is_multicast(header));
}

TEST_CASE("a sender that names a group, or a group's queue pair, is no address", "[datagram]") {
  datagram_header header = header_of("fe80::1", "fe80::2");
  SECTION("a group of IPv6") { header = header_of("ff12::1", "fe80::2"); }
  SECTION("a group of IPv4") { header = header_of(ip4("239.1.2.3", "10.0.0.2")); }
  SECTION("the queue pair") { header.src_qpn = 0xffffff; }
  CHECK(sender_of(header, on_ethernet) == datagram_address{});
  CHECK_THROWS_WITH(check(sender_of(header, on_ethernet), "send_to"),
                    Catch::Contains("neither a gid nor a lid"));
}

TEST_CASE("bytes before an IPv4 header may look like a GRH: then its checksum decides",
          "[datagram]") {
  datagram_header header = header_of("fe80::1", "fe80::2");
  iphdr ip = ip4("10.0.0.1", "239.1.2.3");
  std::memcpy(&header.grh[20], &ip, sizeof ip);
  CHECK(sender_of(header, on_ethernet).path.gid.raw[10] == 0xff);
  ip.check ^= 1;
  std::memcpy(&header.grh[20], &ip, sizeof ip);
  CHECK(sender_of(header, on_ethernet).path.gid.raw[0] == 0xfe);
}

TEST_CASE("an IPv4 header that came by a loopback has no checksum", "[datagram]") {
  iphdr ip = ip4("10.0.0.1", "10.0.0.2");
  ip.check = 0;
  CHECK(sender_of(header_of(ip), on_ethernet).to_string() ==
        "qpn=17,qkey=0x11,gid=::ffff:10.0.0.1,tc=104");
}

TEST_CASE("marks of congestion are no part of the sender's address", "[datagram]") {
  iphdr ip = ip4("10.0.0.1", "10.0.0.2");
  ip.tos |= 3;
  CHECK(sender_of(header_of(ip), on_ethernet).path.traffic_class == 104);
  datagram_header header = header_of("fe80::1", "fe80::2");
  header.grh[1] |= std::byte{0x30};
  CHECK(sender_of(header, on_ethernet).path.traffic_class == 104);
}
