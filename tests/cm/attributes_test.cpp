#include "cm/attributes.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::cm;

namespace {

constexpr parameters own{.responder_resources = 4, .initiator_depth = 3};

}  // namespace

TEST_CASE("a queue pair gets its port and partition from rdma_cm", "[cm]") {
  ibv_qp_attr from{};
  from.port_num = 2;
  from.pkey_index = 5;
  const init_attributes to = to_init(from);
  CHECK(to.port == 2);
  CHECK(to.pkey_index == 5);
}

TEST_CASE("a queue pair gets the peer's address and numbers from rdma_cm", "[cm]") {
  ibv_qp_attr from{};
  from.ah_attr.is_global = 1;
  from.ah_attr.dlid = 7;
  from.ah_attr.sl = 3;
  from.ah_attr.grh.dgid.raw[15] = 9;
  from.ah_attr.grh.sgid_index = 6;
  from.ah_attr.grh.hop_limit = 12;
  from.ah_attr.grh.traffic_class = 0x68;
  from.path_mtu = IBV_MTU_2048;
  from.dest_qp_num = 0xabcdef;
  from.rq_psn = 0x123456;
  from.max_dest_rd_atomic = 2;
  const verbs::rtr_attributes to = to_rtr(from, own);
  CHECK(to.peer.is_global);
  CHECK(to.peer.lid == 7);
  CHECK(to.peer.service_level == 3);
  CHECK(to.peer.gid.raw[15] == 9);
  CHECK(to.peer.gid_index == 6);
  CHECK(to.peer.hop_limit == 12);
  CHECK(to.peer.traffic_class == 0x68);
  CHECK(to.path_mtu == IBV_MTU_2048);
  CHECK(to.dest_qpn == 0xabcdef);
  CHECK(to.rq_psn == 0x123456);
  CHECK(to.dest_rd_atomic_max == 2);
  CHECK(to.min_rnr_timer == verbs::rtr_attributes{}.min_rnr_timer);
}

TEST_CASE("a path within an InfiniBand subnet has a LID alone", "[cm]") {
  ibv_qp_attr from{};
  from.ah_attr.dlid = 7;
  from.ah_attr.grh.sgid_index = 6;  // Means nothing without a GRH.
  const verbs::rtr_attributes to = to_rtr(from, own);
  CHECK_FALSE(to.peer.is_global);
  CHECK(to.peer.lid == 7);
  CHECK(to.peer.gid_index == 0);
}

TEST_CASE("a queue pair sends with the numbers that rdma_cm agreed on", "[cm]") {
  ibv_qp_attr from{};
  from.sq_psn = 0x654321;
  from.max_rd_atomic = 2;
  from.timeout = 19;
  from.retry_cnt = 5;
  from.rnr_retry = 1;
  const verbs::rts_attributes to = to_rts(from, own);
  CHECK(to.sq_psn == 0x654321);
  CHECK(to.rd_atomic_max == 2);
  CHECK(to.timeout == 19);
  CHECK(to.retry_cnt == 5);
  CHECK(to.rnr_retry == 1);
}

TEST_CASE("a peer makes a queue pair serve and do no more than this side can", "[cm]") {
  ibv_qp_attr from{};
  from.max_dest_rd_atomic = 255;
  from.max_rd_atomic = 255;
  CHECK(to_rtr(from, own).dest_rd_atomic_max == 4);
  CHECK(to_rts(from, own).rd_atomic_max == 3);
}

TEST_CASE("a peer that asks for retries for ever gets a number of them", "[cm]") {
  ibv_qp_attr from{};
  from.rnr_retry = 7;
  CHECK(to_rts(from, own).rnr_retry == 6);
}
