#include "connection/peer_gid.hpp"

#include "support/connected_pair.hpp"
#include "support/memory_host.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <string>

using namespace cordma;

namespace {

socket_address address_v4(const char* text) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  REQUIRE(::inet_pton(AF_INET, text, &a.sin_addr) == 1);
  return {reinterpret_cast<const sockaddr*>(&a), sizeof a};
}

socket_address address_v6(const char* text) {
  sockaddr_in6 a{};
  a.sin6_family = AF_INET6;
  REQUIRE(::inet_pton(AF_INET6, text, &a.sin6_addr) == 1);
  return {reinterpret_cast<const sockaddr*>(&a), sizeof a};
}

handshake::hello hello_from(const char* gid) {
  handshake::hello h;
  REQUIRE(::inet_pton(AF_INET6, gid, h.gid.raw) == 1);
  return h;
}

struct gid_row {
  socket_address peer;
  const char* own;    ///< The GID that is the peer's address.
  const char* other;  ///< One bit away from it.
};

}  // namespace

TEST_CASE("a peer of another host may name the GID that is its address, and no other",
          "[connection][device][N2]") {
  runtime rt{test::on_test_device()};
  const gid_row rows[] = {
      {address_v4("192.0.2.1"), "::ffff:192.0.2.1", "::ffff:192.0.2.0"},
      {address_v6("2001:db8::1"), "2001:db8::1", "2001:db8::"},
      {address_v6("::ffff:192.0.2.1"), "::ffff:192.0.2.1", "::ffff:192.0.2.3"},
  };
  for (const gid_row& row : rows) {
    detail::connection_state state{rt.resources(), {}, socket_address::loopback(0), row.peer};
    CHECK_NOTHROW(rt.run(detail::admit_peer_gid(state, hello_from(row.own))));
    const auto other = rt.run(as_result(detail::admit_peer_gid(state, hello_from(row.other))));
    REQUIRE(other.has_failure());
    CHECK(other.failure().code == make_error_code(errc::refused));
    CHECK_THAT(other.failure().to_string(),
               Catch::Contains(row.peer.to_string()) && Catch::Contains(row.other));
    // An address of this host is not that peer's.
    const auto ours =
        rt.run(as_result(detail::admit_peer_gid(state, hello_from("::ffff:127.0.0.1"))));
    CHECK(ours.has_failure());
  }
}

TEST_CASE("a peer of this host may name each of its addresses", "[connection][device][N2]") {
  runtime rt{test::on_test_device()};
  const auto loopback = socket_address::loopback(0);
  detail::connection_state state{rt.resources(), {}, loopback, loopback};
  CHECK_NOTHROW(rt.run(detail::admit_peer_gid(state, hello_from("::ffff:127.0.0.1"))));
  handshake::hello own = hello_from("::");
  own.gid = state.local_hello.gid;
  CHECK_NOTHROW(rt.run(detail::admit_peer_gid(state, own)));
  CHECK_THROWS_WITH(rt.run(detail::admit_peer_gid(state, hello_from("::ffff:192.0.2.1"))),
                    Catch::Contains("set allow_foreign_gid"));
}

TEST_CASE(
    "a peer of this host may name the addresses that the runtime's own host has, and no others",
    "[connection][device][N2]") {
  test::memory_host host;
  host.addresses = {address_v4("198.51.100.1"), address_v6("2001:db8::1")};
  runtime_options options;
  options.executor = test::on_memory(host);
  runtime rt{test::on_test_device(std::move(options))};
  const auto loopback = socket_address::loopback(0);
  detail::connection_state state{rt.resources(), {}, loopback, loopback};
  for (const char* own : {"::ffff:198.51.100.1", "2001:db8::1"})
    CHECK_NOTHROW(rt.run(detail::admit_peer_gid(state, hello_from(own))));
  CHECK_THROWS_AS(rt.run(detail::admit_peer_gid(state, hello_from("::ffff:198.51.100.2"))), error);
}

TEST_CASE("a GID of InfiniBand is no address, and passes", "[connection][device]") {
  runtime rt{test::on_test_device()};
  detail::connection_state state{
      rt.resources(), {}, socket_address::loopback(0), address_v4("192.0.2.1")};
  handshake::hello theirs = hello_from("fe80::1");
  theirs.layer = handshake::link_layer::infiniband;
  CHECK_NOTHROW(rt.run(detail::admit_peer_gid(state, theirs)));
}
