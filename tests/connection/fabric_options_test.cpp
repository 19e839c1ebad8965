#include <cordma/connection/connection_options.hpp>

#include "agent/agent.hpp"
#include "connection/handshake.hpp"
#include "request/queue_pair.hpp"
#include "support/connected_pair.hpp"

#include <catch2/catch.hpp>

#include <initializer_list>

using namespace cordma;
using test::connected_pair;

namespace {

connection_options with(const fabric_options& fabric) {
  connection_options o;
  o.fabric = fabric;
  return o;
}

ibv_qp_attr queried(verbs::queue_pair& qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  REQUIRE(ibv_query_qp(qp.native_handle(), &attributes, IBV_QP_AV | IBV_QP_PATH_MTU, &initial) ==
          0);
  return attributes;
}

/// Checks what the device has of all four queue pairs of a connection.
void check_device_has(connected_pair& p, const fabric_options& wanted) {
  for (connection* const c : {&p.client, &p.server}) {
    for (verbs::queue_pair* const qp : {&c->verbs(), &c->agent()->control().verbs()}) {
      const ibv_qp_attr is = queried(*qp);
      CHECK(is.path_mtu == wanted.mtu);
      const ibv_ah_attr& route = is.ah_attr;
      if (!test::is_rxe()) {  // Soft-RoCE forgets both.
        CHECK(route.sl == wanted.service_level);
        CHECK(ibv_rate(route.static_rate) == wanted.static_rate);
      }
      if (route.is_global == 0) continue;
      CHECK(route.grh.traffic_class == wanted.traffic_class);
      CHECK(route.grh.flow_label == wanted.flow_label);
      // Linux replaces a hop limit by that of the route to the GID.
      if (test::is_soft()) CHECK(route.grh.hop_limit == wanted.hop_limit);
    }
  }
}

/// The options that each side names, and those that both use.
struct row {
  const char* side;
  fabric_options client;
  fabric_options listener;
  fabric_options agreed;
};

}  // namespace

TEST_CASE("the queue pairs of both sides have the options of the fabric that were agreed",
          "[connection][device][N3]") {
  const ibv_mtu active = [] {
    const verbs::context ctx{test::device_name()};
    return ctx.active_port().mtu_active;
  }();
  const fabric_options built_in{.service_level = 0,
                                .mtu = active,
                                .traffic_class = 0,
                                .flow_label = 0,
                                .hop_limit = 64,
                                .static_rate = IBV_RATE_MAX};
  const fabric_options some{.service_level = 3,
                            .mtu = IBV_MTU_512,
                            .traffic_class = 104,
                            .flow_label = 0x12345,
                            .hop_limit = 7,
                            .static_rate = IBV_RATE_10_GBPS};
  const fabric_options other{.service_level = 3,
                             .mtu = IBV_MTU_512,
                             .traffic_class = 32,
                             .flow_label = 0xfffff,
                             .hop_limit = 255,
                             .static_rate = IBV_RATE_MAX};
  for (const row& r : {row{"nobody", {}, {}, built_in}, row{"the client", some, {}, some},
                       row{"the listener", {}, some, some}, row{"both", some, other, other}}) {
    INFO(r.side << " names them");
    connected_pair p{{}, with(r.client), with(r.listener)};
    check_device_has(p, r.agreed);
    local_mr memory = p.rt.memory().allocate_zeroed(8192);
    const auto [m, sent] = p.rt.run(
        when_all(p.server.recv(memory.slice(0, 4096)), p.client.send(memory.slice(4096, 4096))));
    CHECK(m.size_bytes == 4096);
  }
}

TEST_CASE("each side has the P_Key of its row, and tells it", "[connection][device][N3]") {
  connected_pair p;
  const std::uint16_t pkey = p.rt.context().query_pkey(p.client.verbs().port(), 0);
  CHECK(p.client.local_hello().pkey == pkey);
  CHECK(p.client.peer_hello().pkey == pkey);
  CHECK_THROWS_WITH(p.rt.context().query_pkey(p.client.verbs().port(), 60000),
                    Catch::Contains("pkey_index 60000"));
}

TEST_CASE("a client whose service level or MTU is not the listener's is refused, and told why",
          "[connection][device][N3]") {
  runtime rt{test::on_test_device()};
  const fabric_options mine{.service_level = 2, .mtu = IBV_MTU_512};
  listener acceptor = rt.listen({}, {}, {.fabric = mine});
  fabric_options theirs = mine;
  const char* says = "";
  SECTION("service level") {
    theirs.service_level = 1;
    says = "service level 2 here, 1 there";
  }
  SECTION("MTU") {
    theirs.mtu = IBV_MTU_256;
    says = "MTU 512 here, 256 there";
  }
  const auto outcome = rt.run(as_result(rt.connect(acceptor.local_endpoint(), {.fabric = theirs})));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == make_error_code(errc::incompatible_peer));
  CHECK_THAT(outcome.failure().to_string(), Catch::Contains(says));
  REQUIRE(acceptor.last_rejection());
  CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains(says));
}
