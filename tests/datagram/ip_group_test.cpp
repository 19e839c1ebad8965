#include "datagram/ip_group.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <net/if.h>

#include <string>

using namespace cordma;
using Catch::Matchers::Contains;
using detail::parse_ip_group;

namespace {

std::string mgid(const char* group, verbs::gid_type type, std::uint16_t pkey = 0xffff) {
  return verbs::to_string(detail::mgid_of(parse_ip_group(group), type, pkey));
}

}  // namespace

TEST_CASE("an IP group has the MGID that rdma_cm gives it on each kind of port", "[datagram]") {
  using verbs::gid_type;
  CHECK(mgid("239.1.2.3", gid_type::roce_v2) == "::ffff:239.1.2.3");
  CHECK(mgid("239.1.2.3", gid_type::roce_v1) == "ff0e::ffff:ef01:203");
  CHECK(mgid("239.1.2.3", gid_type::ib) == "ff12:4001:ffff::f01:203");
  CHECK(mgid("239.1.2.3", gid_type::ib, 0x12) == "ff12:4001:8012::f01:203");
  CHECK(mgid("ff0e::1", gid_type::roce_v2) == "ff0e::1");
  CHECK(mgid("ff0e::1", gid_type::roce_v1) == "ff0e::1");
  CHECK(mgid("ff0e:1:2:3:4:5:6:7", gid_type::ib) == "ff12:6001:ffff:3:4:5:6:7");
}

TEST_CASE("every group's MGID is one of multicast, and no address is", "[datagram]") {
  using verbs::gid_type;
  for (const char* group : {"224.0.0.1", "239.255.255.255", "ff02::1", "ff15::1234"}) {
    for (const gid_type type : {gid_type::ib, gid_type::roce_v1, gid_type::roce_v2})
      CHECK(detail::is_multicast(detail::mgid_of(parse_ip_group(group), type)));
  }
  ibv_gid gid{};
  CHECK_FALSE(detail::is_multicast(gid));
  gid.raw[10] = gid.raw[11] = 0xff;
  gid.raw[12] = 223;
  CHECK_FALSE(detail::is_multicast(gid));
  gid.raw[12] = 240;
  CHECK_FALSE(detail::is_multicast(gid));
}

TEST_CASE("texts that name no group are refused, and named", "[datagram]") {
  for (const char* text : {"", "1", "10.0.0.1", "223.255.255.255", "240.0.0.0", "::1", "239.1.2",
                           "ff0e::1 ", "ff0e::1%eth0"})
    CHECK_THROWS_WITH(parse_ip_group(text), Contains('"' + std::string{text} + '"'));
}

TEST_CASE("a network interface that does not exist is named with the group", "[datagram]") {
  constexpr std::uint32_t nowhere = 0x7fff'fff0;
  const ibv_gid group = detail::mgid_of(parse_ip_group("239.1.2.3"), verbs::gid_type::roce_v2);
  CHECK_THROWS_WITH(detail::join_ip_group(group, nowhere),
                    Contains("::ffff:239.1.2.3") && Contains(std::to_string(nowhere)));
  CHECK(detail::join_ip_group(group, ::if_nametoindex("lo")).is_open());
}
