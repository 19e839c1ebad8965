#include "pair.hpp"
#include "qp/data_path.hpp"

#include <algorithm>
#include <utility>

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr std::uint32_t grh_size = 40;

/// Two UD ends, and an address handle from the first to the second.
class datagrams : public pair {
 public:
  explicit datagrams(const ibv_ah_attr& path = side::path()) : pair{{.type = IBV_QPT_UD}} {
    ibv_ah_attr attr = path;
    ah_ = verb::create_ah(a.pd, &attr);
    REQUIRE(ah_ != nullptr);
  }
  ~datagrams() { verb::destroy_ah(ah_); }
  datagrams(const datagrams&) = delete;
  datagrams& operator=(const datagrams&) = delete;

  [[nodiscard]] ibv_send_wr to_b(std::uint32_t qkey = 0x1234) const {
    ibv_send_wr wr = request(IBV_WR_SEND);
    wr.wr.ud.ah = ah_;
    wr.wr.ud.remote_qpn = b.qp->qp_num;
    wr.wr.ud.remote_qkey = qkey;
    return wr;
  }

 private:
  ibv_ah* ah_;
};

}  // namespace

TEST_CASE("a datagram arrives behind an IPv4 header that names both ends", "[qp]") {
  datagrams ends;
  ends.a.fill(0, 4096, 8);
  REQUIRE(ends.b.receive(5, {ends.b.piece(0, grh_size), ends.b.piece(100, 4096)}) == 0);
  ibv_send_wr wr = ends.to_b();
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = 77;
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, 96), ends.a.piece(96, 4000)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  const ibv_wc wc = ends.b.await();
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.byte_len == grh_size + 4096);
  CHECK(wc.wc_flags == (IBV_WC_GRH | IBV_WC_WITH_IMM));
  CHECK(wc.imm_data == 77);
  CHECK(wc.src_qp == ends.a.qp->qp_num);
  CHECK(std::memcmp(&ends.a.memory[0], &ends.b.memory[100], 4096) == 0);
  const ibv_gid own = side::path().grh.dgid;
  CHECK(ends.b.memory[20] == std::byte{0x45});
  CHECK(std::memcmp(&ends.b.memory[32], &own.raw[12], 4) == 0);
  CHECK(std::memcmp(&ends.b.memory[36], &own.raw[12], 4) == 0);
  std::uint32_t sum = 0;
  for (std::size_t i = 20; i < 40; i += 2)
    sum += std::to_integer<std::uint32_t>(ends.b.memory[i]) << 8 |
           std::to_integer<std::uint32_t>(ends.b.memory[i + 1]);
  CHECK((sum & 0xffff) + (sum >> 16) == 0xffff);
}

TEST_CASE("a datagram arrives with the traffic class and hop limit of its address handle", "[qp]") {
  ibv_ah_attr path = side::path();
  path.grh.traffic_class = 0xb8;
  path.grh.hop_limit = 7;
  datagrams ends{path};
  REQUIRE(ends.b.receive(1, {ends.b.piece(0, 100)}) == 0);
  REQUIRE(ends.a.send(ends.to_b(), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.b.await().sl == 2);  // RoCE's packet type: IPv4.
  CHECK(ends.b.memory[21] == std::byte{0xb8});
  CHECK(ends.b.memory[28] == std::byte{7});
}

TEST_CASE("a datagram from an IPv6 address has its whole class and flow in its header", "[qp]") {
  frame_header header{};
  header.source_gid[0] = 0xfe;
  header.class_and_flow = 0xb8u << 20 | 0x12345;
  header.hop_limit = 7;
  std::byte grh[grh_bytes];
  write_grh(header, grh);
  CHECK(service_level(header) == 1);
  const std::byte expected[]{std::byte{0x6b}, std::byte{0x81}, std::byte{0x23}, std::byte{0x45}};
  CHECK(std::memcmp(grh, expected, sizeof expected) == 0);
  CHECK(grh[7] == std::byte{7});
}

TEST_CASE("a datagram that nobody may take is lost without a word", "[qp]") {
  datagrams ends;
  const node& local_node = *softverbs::soft(ends.b.qp->context).local_node;
  unsigned violations = local_node.qkey_violations();
  ibv_send_wr wr = ends.to_b();
  SECTION("no receive is posted") {}
  SECTION("its Q_Key is another's, which the port counts") {
    violations = std::min(violations + 1, 0xffffu);
    wr = ends.to_b(0x4321);
    REQUIRE(ends.b.receive(1, {ends.b.piece(0, 100)}) == 0);
  }
  SECTION("the receive has no room for the header too") {
    REQUIRE(ends.b.receive(1, {ends.b.piece(0, 47)}) == 0);
  }
  SECTION("nobody has that number") { wr.wr.ud.remote_qpn ^= 0x100; }
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(ends.b.is_quiet());
  CHECK(ends.b.state() == IBV_QPS_RTS);
  // A frame may come after the end of its request.
  const auto end = clock::now() + patience;
  while (local_node.qkey_violations() != violations && clock::now() < end) CHECK(ends.b.is_quiet());
  CHECK(local_node.qkey_violations() == violations);
}

TEST_CASE("the count of wrong Q_Keys ends at its largest value", "[qp]") {
  node& local_node = node::acquire();
  for (unsigned n = 0; n <= 0xffff; ++n) local_node.count_qkey_violation();
  CHECK(local_node.qkey_violations() == 0xffff);
  node::release(local_node);
}

TEST_CASE("a Q_Key with its high bit set stands for the sender's own", "[qp]") {
  datagrams ends;
  REQUIRE(ends.b.receive(1, {ends.b.piece(0, 100)}) == 0);
  REQUIRE(ends.a.send(ends.to_b(0x80000000), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(ends.b.await().byte_len == grh_size + 8);
}

TEST_CASE("a datagram longer than the MTU stops the send queue alone", "[qp]") {
  datagrams ends;
  REQUIRE(ends.a.receive(1, {ends.a.piece(0, 100)}) == 0);
  REQUIRE(ends.a.send(ends.to_b(), {ends.a.piece(0, 4097)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_LOC_LEN_ERR);
  CHECK(ends.a.state() == IBV_QPS_SQE);
  REQUIRE(ends.a.send(ends.to_b(), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_WR_FLUSH_ERR);
  ends.a.to(IBV_QPS_RTS);
  REQUIRE(ends.b.receive(2, {ends.b.piece(0, 100)}) == 0);
  REQUIRE(ends.a.send(ends.to_b(), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(ends.b.await().byte_len == 48);
  CHECK(ends.a.is_quiet());
}
