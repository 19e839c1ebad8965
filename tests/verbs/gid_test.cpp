#include "verbs/gid.hpp"

#include <cordma/base/error.hpp>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace cordma::verbs;
using Catch::Matchers::Contains;

namespace {

ibv_gid gid(const char* ipv6) {
  ibv_gid parsed{};
  REQUIRE(::inet_pton(AF_INET6, ipv6, parsed.raw) == 1);
  return parsed;
}

gid_entry row(std::uint32_t index, const char* ipv6, gid_type type = gid_type::roce_v2) {
  return {.gid = gid(ipv6), .index = index, .type = type};
}

std::string failure_text(const std::vector<gid_entry>& table, const gid_request& request) {
  try {
    (void)choose_gid(table, request);
  } catch (const cordma::error& e) {
    CHECK(e.failure().code == cordma::errc::no_gid);
    return e.what();
  }
  return "no error";
}

constexpr const char* link_local = "fe80::42:acff:fe11:2";
constexpr const char* global = "2001:db8::7";
constexpr const char* mapped = "::ffff:10.0.0.1";
constexpr const char* other_mapped = "::ffff:192.168.7.1";

}  // namespace

TEST_CASE("the GID is chosen by wish, then type, then kind of address, then index", "[verbs][N7]") {
  struct {
    const char* what;
    std::vector<gid_entry> table;
    gid_request request;
    std::uint32_t chosen;
  } const cases[] = {
      {"the only one", {row(0, link_local)}, {}, 0},
      {"IPv4-mapped over link-local", {row(0, link_local), row(1, mapped)}, {}, 1},
      {"global over link-local", {row(0, link_local), row(1, global)}, {}, 1},
      {"IPv4-mapped over global", {row(0, global), row(1, mapped)}, {}, 1},
      {"v2 over v1 of the same address",
       {row(2, mapped, gid_type::roce_v1), row(3, mapped)},
       {},
       3},
      {"v2 link-local over v1 mapped",
       {row(0, mapped, gid_type::roce_v1), row(1, link_local)},
       {},
       1},
      {"the lower index of equals", {row(5, mapped), row(4, other_mapped)}, {}, 4},
      {"zero GIDs are skipped", {row(0, "::"), row(1, link_local)}, {}, 1},
      {"a subnet prefix alone is no address", {row(0, "fe80::"), row(1, link_local)}, {}, 1},
      {"InfiniBand: the first row", {row(0, link_local, gid_type::ib)}, {}, 0},
      {"the wished family: IPv6",
       {row(0, link_local), row(1, mapped), row(2, global)},
       {.family = gid_request::ip::v6},
       2},
      {"the wished family: IPv4",
       {row(0, global), row(1, mapped, gid_type::roce_v1)},
       {.family = gid_request::ip::v4},
       1},
      {"a wished family that is not there",
       {row(0, link_local)},
       {.family = gid_request::ip::v4},
       0},
      {"the bootstrap socket's address",
       {row(1, mapped), row(2, other_mapped)},
       {.local_ip = gid(other_mapped)},
       2},
      {"v2 of the bootstrap socket's address",
       {row(1, mapped), row(2, other_mapped, gid_type::roce_v1), row(3, other_mapped)},
       {.local_ip = gid(other_mapped)},
       3},
      {"an address over a family",
       {row(1, mapped), row(2, global)},
       {.local_ip = gid(global), .family = gid_request::ip::v4},
       2},
      {"a loopback bootstrap changes nothing",
       {row(0, link_local), row(1, mapped)},
       {.local_ip = gid("::ffff:127.0.0.1")},
       1},
      {"an explicit index over any rank", {row(0, link_local), row(1, mapped)}, {.index = 0}, 0},
  };
  for (const auto& c : cases) {
    INFO(c.what);
    CHECK(choose_gid(c.table, c.request).index == c.chosen);
  }
}

TEST_CASE("a port without a usable GID is an error that names the way out", "[verbs][N7]") {
  CHECK_THAT(failure_text({}, {}), Contains("0 rows") && Contains("ip address add"));
  CHECK_THAT(failure_text({row(0, "::")}, {}), Contains("1 rows"));
}

TEST_CASE("an explicit GID index that cannot be used is refused, with those that can",
          "[verbs][N7]") {
  const std::vector<gid_entry> table{row(0, link_local), row(1, mapped), row(2, "::")};
  CHECK_THAT(failure_text(table, {.index = 9}),
             Contains("gid_index 9") && Contains("usable: 0, 1"));
  CHECK_THAT(failure_text(table, {.index = 2}),
             Contains("gid_index 2") && Contains("usable: 0, 1"));
  CHECK_THAT(failure_text({}, {.index = 0}), Contains("usable: none"));
}

TEST_CASE("an address of a socket becomes the GID that RoCE gives it", "[verbs][N7]") {
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = ::htonl(0x0a000001);
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  REQUIRE(::inet_pton(AF_INET6, global, &v6.sin6_addr) == 1);
  sockaddr_un local{};
  local.sun_family = AF_UNIX;

  CHECK(to_string(gid_of(reinterpret_cast<const sockaddr&>(v4)).value()) == mapped);
  CHECK(to_string(gid_of(reinterpret_cast<const sockaddr&>(v6)).value()) == global);
  CHECK_FALSE(gid_of(reinterpret_cast<const sockaddr&>(local)).has_value());
}
