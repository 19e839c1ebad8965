#include "multicast/group.hpp"

#include "groups.hpp"
#include "node/gid_table.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <catch2/catch.hpp>

#include <cerrno>
#include <cstring>

using namespace softverbs;
using softverbs::test::group;

namespace {

ibv_gid gid(const char* text) {
  ibv_gid result;
  REQUIRE(::inet_pton(AF_INET6, text, &result) == 1);
  return result;
}

bool same(const ibv_gid& a, const ibv_gid& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE("the multicast GIDs are those of the kernel", "[multicast]") {
  for (const char* text : {"::ffff:224.0.0.1", "::ffff:239.255.255.255", "ff0e::ffff:224.1.1.1",
                           "ff02::1", "ff12:401b:ffff::1"})
    CHECK(is_multicast(gid(text)));
  for (const char* text : {"::ffff:223.255.255.255", "::ffff:240.0.0.0", "fe80::1", "::1",
                           "::", "::224.0.0.1", "2001:db8::ff"})
    CHECK_FALSE(is_multicast(gid(text)));
}

TEST_CASE("an address is mapped to its group as the kernel does", "[multicast]") {
  ibv_gid mgid{};
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  REQUIRE(::inet_pton(AF_INET, "239.1.1.9", &v4.sin_addr) == 1);
  CHECK(group_of(reinterpret_cast<const sockaddr&>(v4), mgid));
  CHECK(same(mgid, gid("::ffff:239.1.1.9")));
  REQUIRE(::inet_pton(AF_INET, "10.1.1.9", &v4.sin_addr) == 1);
  CHECK_FALSE(group_of(reinterpret_cast<const sockaddr&>(v4), mgid));

  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  REQUIRE(::inet_pton(AF_INET6, "ff05::77", &v6.sin6_addr) == 1);
  CHECK(group_of(reinterpret_cast<const sockaddr&>(v6), mgid));
  CHECK(same(mgid, gid("ff05::77")));
  v6.sin6_addr = in6addr_any;
  CHECK_FALSE(group_of(reinterpret_cast<const sockaddr&>(v6), mgid));

  struct {  // As sockaddr_ib: family, P_Key, flow, and then the address.
    sa_family_t family = 27;
    std::uint16_t pkey = 0;
    std::uint32_t flow = 0;
    ibv_gid raw = gid("ff12:401b::5");
    std::uint64_t rest[3]{};
  } ib;
  CHECK(group_of(reinterpret_cast<const sockaddr&>(ib), mgid));
  CHECK(same(mgid, ib.raw));
  ib.family = AF_UNIX;
  CHECK_FALSE(group_of(reinterpret_cast<const sockaddr&>(ib), mgid));
}

TEST_CASE("a join is answered with what an address handle and a send need", "[multicast]") {
  const int last = gid_count() - 1;
  group_join join{};
  REQUIRE(answer_join(group(1), gid_at(last), 0, join) == 0);
  CHECK(same(join.mgid, group(1)));
  CHECK(same(join.path.grh.dgid, group(1)));
  CHECK(join.path.grh.sgid_index == last);
  CHECK(join.path.grh.hop_limit == 64);
  CHECK(join.path.is_global == 1);
  CHECK(join.path.port_num == 1);
  CHECK(join.path.dlid == 0);
  CHECK(join.mlid == 0);
  CHECK(join.qp_num == 0xffffff);
  CHECK(join.qkey == 0x01234567);
}

TEST_CASE("a join has the Q_Key of its identifier, if that has one", "[multicast]") {
  group_join join{};
  REQUIRE(answer_join(gid("ff05::77"), gid_at(gid_count() - 1), 5, join) == 0);
  CHECK(join.qkey == 5);
  CHECK(join.path.grh.hop_limit == 1);
}

TEST_CASE("a join of no group, or from no address of this host, is refused", "[multicast]") {
  group_join join{};
  CHECK(answer_join(gid("::ffff:10.1.1.1"), gid_at(gid_count() - 1), 0, join) == EINVAL);
  CHECK(answer_join(group(1), gid("2001:db8::1"), 0, join) == ENODEV);
}
