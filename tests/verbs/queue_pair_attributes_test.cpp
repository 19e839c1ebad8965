#include "verbs/queue_pair_attributes.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <string>

using namespace cordma::verbs;
using Catch::Matchers::Contains;

namespace {

constexpr device_limits limits{.qp_wr_max = 16384,
                               .sge_max = 32,
                               .qp_rd_atom_max = 128,
                               .qp_init_rd_atom_max = 64,
                               .port_count = 1};

rtr_attributes good_rtr() {
  rtr_attributes a;
  a.peer = address_vector::by_lid(1);
  return a;
}

template <class Attributes>
std::string refusal(const Attributes& attributes) {
  try {
    check(attributes, limits);
  } catch (const cordma::error& e) {
    CHECK(e.failure().code == cordma::errc::limit_exceeded);
    return e.what();
  }
  return "accepted";
}

template <class Change>
std::string rtr_refusal(Change change) {
  rtr_attributes a = good_rtr();
  change(a);
  return refusal(a);
}

}  // namespace

TEST_CASE("capabilities above the device's limits are refused with both numbers", "[verbs][N9]") {
  CHECK(refusal(queue_pair_capabilities{}) == "accepted");
  CHECK(refusal(queue_pair_capabilities{
            .send_wr_max = 16384, .recv_wr_max = 16384, .send_sge_max = 32, .recv_sge_max = 32}) ==
        "accepted");
  CHECK_THAT(refusal(queue_pair_capabilities{.send_wr_max = 70000}),
             Contains("send_wr_max 70000 exceeds the device's 16384"));
  CHECK_THAT(refusal(queue_pair_capabilities{.recv_wr_max = 16385}),
             Contains("recv_wr_max 16385 exceeds the device's 16384"));
  CHECK_THAT(refusal(queue_pair_capabilities{.send_sge_max = 33}),
             Contains("send_sge_max 33 exceeds the device's 32"));
  CHECK_THAT(refusal(queue_pair_capabilities{.recv_sge_max = 33}),
             Contains("recv_sge_max 33 exceeds the device's 32"));
  CHECK_THAT(refusal(queue_pair_capabilities{.send_wr_max = 0}), Contains("send_wr_max 0"));
}

TEST_CASE("attributes of RTR out of range are refused by name", "[verbs][N8]") {
  using rtr = rtr_attributes;
  CHECK(refusal(good_rtr()) == "accepted");
  CHECK_THAT(rtr_refusal([](rtr& a) { a.path_mtu = ibv_mtu(0); }), Contains("path_mtu 0"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.path_mtu = ibv_mtu(6); }), Contains("path_mtu 6"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.dest_qpn = 1u << 24; }),
             Contains("dest_qpn 16777216 exceeds the most, 16777215"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.rq_psn = 1u << 24; }), Contains("rq_psn 16777216"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.dest_rd_atomic_max = 129; }),
             Contains("dest_rd_atomic_max 129 exceeds the device's 128"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.min_rnr_timer = 0; }), Contains("655.36 ms"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.min_rnr_timer = 32; }), Contains("min_rnr_timer 32"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.peer = {}; }), Contains("neither a LID nor a GID"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.peer.service_level = 16; }), Contains("service_level 16"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.peer.flow_label = 1u << 20; }),
             Contains("flow_label 1048576 exceeds the most, 1048575"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.peer.static_rate = ibv_rate(1); }),
             Contains("static_rate 1 is no ibv_rate"));
  CHECK_THAT(rtr_refusal([](rtr& a) { a.peer.gid_index = 256; }), Contains("gid_index 256"));
}

TEST_CASE("attributes of RTS out of range are refused by name", "[verbs][N8]") {
  CHECK(refusal(rts_attributes{}) == "accepted");
  CHECK_THAT(refusal(rts_attributes{.sq_psn = 1u << 24}), Contains("sq_psn 16777216"));
  CHECK_THAT(refusal(rts_attributes{.rd_atomic_max = 65}),
             Contains("rd_atomic_max 65 exceeds the device's 64"));
  CHECK_THAT(refusal(rts_attributes{.timeout = 0}), Contains("waits for ever"));
  CHECK_THAT(refusal(rts_attributes{.timeout = 32}), Contains("timeout 32"));
  CHECK_THAT(refusal(rts_attributes{.retry_cnt = 8}), Contains("retry_cnt 8"));
  CHECK_THAT(refusal(rts_attributes{.rnr_retry = 7}), Contains("retries for ever"));
  CHECK_THAT(refusal(rts_attributes{.rnr_retry = 8}), Contains("rnr_retry 8"));
}

TEST_CASE("a type of queue pair that cordma does not make names what it needs", "[verbs]") {
  for (const auto made : {queue_pair_type::rc, queue_pair_type::uc, queue_pair_type::ud,
                          queue_pair_type::xrc_initiator})
    CHECK_NOTHROW(check(made));
  const auto refusal_of = [](int type) -> std::string {
    try {
      check(queue_pair_type(type));
    } catch (const cordma::error& e) {
      CHECK(e.failure().code == cordma::errc::not_supported);
      return e.what();
    }
    return "accepted";
  };
  CHECK_THAT(refusal_of(IBV_QPT_DRIVER), Contains("DCT") && Contains("mlx5dv_create_qp"));
  CHECK_THAT(refusal_of(IBV_QPT_XRC_RECV), Contains("XRC target") && Contains("xrc_domain"));
  CHECK_THAT(refusal_of(IBV_QPT_RAW_PACKET), Contains("ibv_create_flow"));
  CHECK_THAT(refusal_of(77), Contains("type 77") && Contains("RC, UC, UD"));
}
