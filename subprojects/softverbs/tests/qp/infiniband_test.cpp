#include "node/port.hpp"
#include "pair.hpp"
#include "qp/data_path.hpp"

#include <netinet/in.h>

#include <cerrno>

// soft0 as an InfiniBand port: run with SOFTVERBS_LINK_LAYER=infiniband.

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr std::uint32_t grh_size = 40;
constexpr std::byte untouched{0x5a};

/// Two UD ends with an address handle from the first to the second.
class datagrams : public pair {
 public:
  explicit datagrams(bool is_global) : pair{{.type = IBV_QPT_UD}} {
    ibv_ah_attr attr = side::path();
    attr.sl = 3;
    if (is_global) {
      attr.is_global = 1;
      attr.grh.dgid = gid_at(0);
      attr.grh.flow_label = 5;
      attr.grh.hop_limit = 9;
      attr.grh.traffic_class = 0xb8;
    }
    ah_ = verb::create_ah(a.pd, &attr);
    REQUIRE(ah_ != nullptr);
    std::fill(b.memory.begin(), b.memory.end(), untouched);
  }
  ~datagrams() { verb::destroy_ah(ah_); }
  datagrams(const datagrams&) = delete;
  datagrams& operator=(const datagrams&) = delete;

  ibv_wc exchange() {
    REQUIRE(b.receive(5, {b.piece(0, grh_size + 16)}) == 0);
    a.fill(0, 16, 8);
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.wr.ud = {.ah = ah_, .remote_qpn = b.qp->qp_num, .remote_qkey = 0x1234};
    REQUIRE(a.send(wr, {a.piece(0, 16)}) == 0);
    CHECK(a.await().status == IBV_WC_SUCCESS);
    const ibv_wc wc = b.await();
    CHECK(wc.status == IBV_WC_SUCCESS);
    CHECK(wc.byte_len == grh_size + 16);
    CHECK(wc.slid == port_subnet()->own_lid());
    CHECK(wc.sl == 3);
    CHECK(wc.dlid_path_bits == 0);
    CHECK(std::memcmp(&a.memory[0], &b.memory[grh_size], 16) == 0);
    return wc;
  }

 private:
  ibv_ah* ah_;
};

int to_rtr_by(const ibv_ah_attr& path) {
  side one{{}};
  one.to_init();
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_RTR;
  attr.path_mtu = IBV_MTU_1024;
  attr.ah_attr = path;
  return verb::modify_qp(one.qp, &attr,
                         IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                             IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER);
}

}  // namespace

TEST_CASE("a connection by LID alone carries data", "[qp]") {
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC}) {
    pair ends{{.type = type}};
    ends.a.fill(0, 5000, 3);
    REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 5000)}) == 0);
    CHECK(ends.a.await().status == IBV_WC_SUCCESS);
    CHECK(std::memcmp(&ends.a.memory[0], &ends.b.memory[0], 5000) == 0);
  }
}

TEST_CASE("a datagram by LID has no header, whose place is left alone", "[qp]") {
  datagrams ends{false};
  CHECK((ends.exchange().wc_flags & IBV_WC_GRH) == 0);
  for (std::size_t i = 0; i < grh_size; ++i) CHECK(ends.b.memory[i] == untouched);
}

TEST_CASE("a datagram by GID has a GRH that names both ends", "[qp]") {
  datagrams ends{true};
  CHECK((ends.exchange().wc_flags & IBV_WC_GRH) != 0);
  ibv_grh grh;
  std::memcpy(&grh, ends.b.memory.data(), sizeof grh);
  const ibv_gid own = gid_at(0);
  CHECK(ntohl(grh.version_tclass_flow) == (6u << 28 | 0xb8u << 20 | 5));
  CHECK(grh.next_hdr == 0x1b);
  CHECK(grh.hop_limit == 9);
  CHECK(std::memcmp(&grh.sgid, &own, sizeof own) == 0);
  CHECK(std::memcmp(&grh.dgid, &own, sizeof own) == 0);
}

TEST_CASE("an InfiniBand port has one GID, made of the subnet's prefix and the address", "[qp]") {
  const side one{{}};
  REQUIRE(gid_count() == 1);
  const ibv_gid gid = gid_at(0);
  CHECK(gid.global.subnet_prefix == htobe64(0xfe80000000000000));
  CHECK(be64toh(gid.global.interface_id) == (0x0200737600000000 | port_subnet()->own_address()));
  CHECK(gid_at(1).global.interface_id == 0);
}

TEST_CASE("a path needs a unicast LID, or a GID of the subnet", "[qp]") {
  const side opened{{}};
  ibv_ah_attr path = side::path();
  CHECK(to_rtr_by(path) == 0);
  path.dlid = 0;
  CHECK(to_rtr_by(path) == EINVAL);
  path.dlid = 0xc000;
  CHECK(to_rtr_by(path) == EINVAL);
  path.dlid = 0;
  path.is_global = 1;
  path.grh.dgid = gid_at(0);
  CHECK(to_rtr_by(path) == 0);
  path.grh.dgid.raw[8] = 0x10;  // Another vendor's GUID.
  CHECK(to_rtr_by(path) == EINVAL);
  path.dlid = port_subnet()->own_lid();  // The LID leads to the host within the subnet.
  CHECK(to_rtr_by(path) == 0);
  path.grh.sgid_index = 1;
  CHECK(to_rtr_by(path) == EINVAL);
}
