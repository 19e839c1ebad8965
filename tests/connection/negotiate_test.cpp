#include "connection/handshake.hpp"

#include "support/some_hello.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
namespace hs = cordma::handshake;
using hs::side;

namespace {

/// Hellos of a client and a listener, and what each side agrees on.
struct both_sides {
  hs::hello client = test::some_hello(2);
  hs::hello listener = test::some_hello(3);

  [[nodiscard]] hs::agreement of_client() const {
    return hs::negotiate(client, listener, 0, side::client);
  }
  [[nodiscard]] hs::agreement of_listener() const {
    return hs::negotiate(listener, client, 0, side::listener);
  }
};

/// Checks that both sides refuse each other, and that each names its own value first.
void check_refused(const both_sides& b, const std::string& of_client,
                   const std::string& of_listener) {
  CHECK_THROWS_WITH(b.of_client(), Catch::Contains(of_client));
  CHECK_THROWS_WITH(b.of_listener(), Catch::Contains(of_listener));
  try {
    static_cast<void>(b.of_client());
  } catch (const error& e) {
    CHECK(e.code() == make_error_code(errc::incompatible_peer));
  }
}

void check_route(const verbs::address_vector& route, const fabric_options& wanted) {
  CHECK(route.service_level == wanted.service_level);
  CHECK(route.traffic_class == wanted.traffic_class);
  CHECK(route.flow_label == wanted.flow_label);
  CHECK(route.hop_limit == wanted.hop_limit);
  CHECK(route.static_rate == wanted.static_rate);
}

void check_both(const both_sides& b, const fabric_options& wanted) {
  for (const hs::agreement& a : {b.of_client(), b.of_listener()}) {
    check_route(a.rtr.peer, wanted);
    CHECK(a.rtr.path_mtu == wanted.mtu);
  }
}

}  // namespace

TEST_CASE("what neither side names of a fabric is built in", "[connection][N3]") {
  both_sides b;
  b.client.mtu = IBV_MTU_2048;
  check_both(b, {.service_level = 0,
                 .mtu = IBV_MTU_1024,
                 .traffic_class = 0,
                 .flow_label = 0,
                 .hop_limit = 64,
                 .static_rate = IBV_RATE_MAX});
}

TEST_CASE("what one side names of a fabric both sides use", "[connection][N3]") {
  both_sides b;
  const fabric_options named{.service_level = 3,
                             .mtu = IBV_MTU_512,
                             .traffic_class = 104,
                             .flow_label = 0xabcde,
                             .hop_limit = 1,
                             .static_rate = IBV_RATE_10_GBPS};
  SECTION("the client") { b.client.fabric = named; }
  SECTION("the listener") { b.listener.fabric = named; }
  check_both(b, named);
}

TEST_CASE("where a listener names its own, a client's proposal counts for nothing",
          "[connection][N3]") {
  both_sides b;
  b.client.fabric = {.service_level = 7,
                     .mtu = IBV_MTU_256,
                     .traffic_class = 1,
                     .flow_label = 2,
                     .hop_limit = 3,
                     .static_rate = IBV_RATE_5_GBPS};
  b.listener.fabric = {.service_level = 7,
                       .mtu = IBV_MTU_256,
                       .traffic_class = 0,
                       .flow_label = 0,
                       .hop_limit = 64,
                       .static_rate = IBV_RATE_MAX};
  check_both(b, b.listener.fabric);
  b.listener.fabric.flow_label.reset();
  fabric_options mixed = b.listener.fabric;
  mixed.flow_label = 2;
  check_both(b, mixed);
}

TEST_CASE("an agent's control queue pair takes the data queue pair's route and MTU",
          "[connection][N3]") {
  both_sides b;
  for (hs::hello* const one : {&b.client, &b.listener}) {
    one->agent = {.qpn = 9, .flush_word = {0x1000, 8, 1}};
    one->rd_atomic_initiator = one->rd_atomic_responder = 1;
  }
  b.client.fabric = {.service_level = 3, .mtu = IBV_MTU_512, .traffic_class = 104};
  const hs::agreement agreed = b.of_listener();
  REQUIRE(agreed.control);
  CHECK(agreed.control->rtr.peer.service_level == 3);
  CHECK(agreed.control->rtr.peer.traffic_class == 104);
  CHECK(agreed.control->rtr.path_mtu == IBV_MTU_512);
}

TEST_CASE("an address that is known already keeps what neither side names", "[connection][N3]") {
  both_sides b;
  b.client.fabric.traffic_class = 8;
  verbs::address_vector known = verbs::address_vector::by_lid(77);
  known.service_level = 5;
  known.flow_label = 6;
  const verbs::address_vector got =
      hs::negotiate(b.client, b.listener, known, side::client).rtr.peer;
  CHECK(got.lid == 77);
  CHECK_FALSE(got.is_global);
  check_route(got, {.service_level = 5,
                    .traffic_class = 8,
                    .flow_label = 6,
                    .hop_limit = known.hop_limit,
                    .static_rate = known.static_rate});
}

TEST_CASE("sides that name different service levels or MTUs are refused", "[connection][N3]") {
  both_sides b;
  SECTION("service levels") {
    b.client.fabric.service_level = 3;
    b.listener.fabric.service_level = 0;
    check_refused(b, "service level 3 here, 0 there", "service level 0 here, 3 there");
  }
  SECTION("MTUs") {
    b.client.fabric.mtu = IBV_MTU_1024;
    b.listener.fabric.mtu = IBV_MTU_256;
    check_refused(b, "MTU 1024 here, 256 there", "MTU 256 here, 1024 there");
  }
  SECTION("an MTU above what the other side's port has") {
    b.client.mtu = b.client.fabric.mtu.emplace(IBV_MTU_4096);
    check_refused(b, "MTU 4096 is set here, and the active MTU of the port there is 1024",
                  "MTU 4096 is set there, and the active MTU of the port here is 1024");
  }
}

TEST_CASE("sides of which neither is the client must name the same, or only one of them",
          "[connection][N3]") {
  both_sides b;
  const auto agreed = [&] {
    return hs::negotiate(b.client, b.listener, 0, side::equal).rtr.peer.traffic_class;
  };
  b.client.fabric.traffic_class = 8;
  CHECK(agreed() == 8);
  b.listener.fabric.traffic_class = 8;
  CHECK(agreed() == 8);
  b.listener.fabric.traffic_class = 4;
  CHECK_THROWS_WITH(agreed(), Catch::Contains("traffic class 8 here, 4 there"));
  b.client.fabric.traffic_class.reset();
  CHECK(agreed() == 4);
}

TEST_CASE("P_Keys fit if they are of one partition, and one of a full member", "[connection][N3]") {
  both_sides b;
  struct row {
    std::uint16_t client;
    std::uint16_t listener;
    bool fit;
  };
  for (const row& r :
       {row{0xffff, 0xffff, true}, row{0x8001, 0x8001, true}, row{0x8001, 0x0001, true},
        row{0x0001, 0x8001, true}, row{0x0001, 0x0001, false}, row{0x8001, 0x8002, false},
        row{0x8001, 0x0002, false}, row{0x7fff, 0x7fff, false}}) {
    INFO(r.client << ", " << r.listener);
    b.client.pkey = r.client;
    b.listener.pkey = r.listener;
    if (r.fit) {
      CHECK_NOTHROW(b.of_client());
      CHECK_NOTHROW(b.of_listener());
    } else {
      CHECK_THROWS_AS(b.of_client(), error);
      CHECK_THROWS_AS(b.of_listener(), error);
    }
  }
  b.client.pkey = 0x8001;
  b.listener.pkey = 0x0002;
  check_refused(b, "P_Key 0x8001 here, 0x0002 there: choose rows of one partition",
                "P_Key 0x0002 here, 0x8001 there: choose rows of one partition");
  b.client.pkey = b.listener.pkey = 0x0001;
  check_refused(b, "0x0001 here, 0x0001 there: limited members", "limited members");
}

TEST_CASE("RC and UC do not go together, and each side names its own first", "[connection]") {
  both_sides b;
  b.client.service = hs::service::unreliable;
  check_refused(b, "transport UC here, RC there", "transport RC here, UC there");
}

TEST_CASE("an XRC initiator goes with a target alone, and a target with an initiator",
          "[connection]") {
  both_sides b;
  b.client.service = hs::service::xrc_initiator;
  b.listener.service = hs::service::xrc_target;
  CHECK_NOTHROW(b.of_client());
  CHECK_NOTHROW(b.of_listener());
  for (const hs::service other : {hs::service::reliable, hs::service::unreliable}) {
    both_sides mixed = b;
    mixed.listener.service = other;
    check_refused(mixed, "transport XRC initiator here", "there: set the same");
    mixed.listener = b.listener;
    mixed.client.service = other;
    check_refused(mixed, "XRC target there", "transport XRC target here");
  }
  b.listener.service = b.client.service;
  check_refused(b, "XRC initiator here, XRC initiator there",
                "XRC initiator here, XRC initiator there");
}

TEST_CASE("over UC agents need no READs", "[connection]") {
  both_sides b;
  for (hs::hello* const h : {&b.client, &b.listener}) {
    h->agent = {.qpn = 4, .flush_word = {0, 8, 1}};
    h->rd_atomic_initiator = h->rd_atomic_responder = 0;
  }
  check_refused(b, "beside agents each way needs one", "beside agents each way needs one");
  for (hs::hello* const h : {&b.client, &b.listener}) h->service = hs::service::unreliable;
  CHECK(b.of_client().control);
  CHECK(b.of_listener().rts.rd_atomic_max == 0);
}
