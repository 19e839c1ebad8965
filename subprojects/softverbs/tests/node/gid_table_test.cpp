#include "node/gid_table.hpp"

#include "node/node.hpp"

#include <arpa/inet.h>

#include <catch2/catch.hpp>

#include <cstring>

using namespace softverbs;

namespace {

ibv_gid gid(const char* text) {
  ibv_gid result;
  REQUIRE(::inet_pton(AF_INET6, text, &result) == 1);
  return result;
}

bool same(const ibv_gid& a, const ibv_gid& b) { return std::memcmp(&a, &b, sizeof a) == 0; }

}  // namespace

TEST_CASE("the GID table ends with 127.0.0.1, and has nothing twice or beyond", "[node]") {
  const int count = gid_count();
  REQUIRE(count >= 1);
  REQUIRE(count <= gids_max);
  CHECK(same(gid_at(count - 1), gid("::ffff:127.0.0.1")));
  for (int n = 0; n < count; ++n) {
    CHECK_FALSE(same(gid_at(n), ibv_gid{}));
    CHECK(is_own_address(gid_at(n)));
    CHECK(gid_index(gid_at(n)) == n);
    for (int m = 0; m < n; ++m) CHECK_FALSE(same(gid_at(n), gid_at(m)));
  }
  CHECK(same(gid_at(count), ibv_gid{}));
  CHECK(same(gid_at(-1), ibv_gid{}));
  CHECK(gid_index(gid("::ffff:127.9.9.9")) == count - 1);
  CHECK(gid_index(gid("::1")) == count - 1);
  CHECK(gid_index(gid("100::1")) < 0);  // 100::/64 discards: no interface has it.
}

TEST_CASE("loopback leads to this host, another address to another one", "[node]") {
  node& local_node = node::acquire();
  const std::uint32_t qpn = std::uint32_t{local_node.slot()} << index_bits | 5;
  for (const char* own : {"::ffff:127.0.0.1", "::ffff:127.9.9.9", "::1", "::"}) {
    const node_address address = local_node.resolve(gid(own), qpn);
    CHECK(local_node.is_local(address));
    CHECK(address.slot == local_node.slot());
    CHECK_FALSE(local_node.is_local(local_node.resolve(gid(own), qpn ^ (1u << index_bits))));
  }
  // 240.0.0.0/4 is reserved and 100::/64 discards: no interface has them.
  for (const char* other : {"::ffff:240.0.0.1", "100::1"}) {
    const node_address address = local_node.resolve(gid(other), qpn);
    CHECK_FALSE(local_node.is_local(address));
    CHECK(std::memcmp(&address.host, gid(other).raw, 16) == 0);
  }
  node::release(local_node);
}
