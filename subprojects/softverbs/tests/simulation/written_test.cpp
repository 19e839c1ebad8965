#include "simulation/world.hpp"

#include <catch2/catch.hpp>

#include <memory>
#include <utility>
#include <vector>

// A simulation hears of all that devices write into the memory of their processes.

using namespace softverbs;
using namespace softverbs::test;

namespace {

using writes = std::vector<plain_world::device_write>;

/// Lets `b` receive `bytes` bytes.
void receive(far_pair& both, std::size_t bytes) {
  const on_host here{both.host(2)};
  REQUIRE(both.b().receive(9, {both.b().piece(0, bytes)}) == 0);
}

/// A queue pair of a host that is connected with itself.
class one_host {
 public:
  one_host() : here_{world.add(1)}, own{std::make_unique<side>(pair_options{})} {
    own->to_init();
    own->to_rtr(own->qp->qp_num, 0);
    own->to_rts(0);
  }
  void send(const ibv_send_wr& wr, std::vector<ibv_sge> list) {
    REQUIRE(own->send(wr, std::move(list)) == 0);
    ibv_wc wc{};
    REQUIRE(verb::poll_cq(own->cq, 1, &wc) == 1);
    REQUIRE(wc.status == IBV_WC_SUCCESS);
  }
  plain_world world;

 private:
  on_host here_;

 public:
  std::unique_ptr<side> own;
};

}  // namespace

TEST_CASE("a simulation hears of each piece of a WRITE, with its key", "[simulation]") {
  far_pair both;
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b(), 64),
            {both.a().piece(0, segment_bytes_max + 100)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(both.world.writes ==
        writes{{both.host(2), both.b().address(64), segment_bytes_max, both.b().mr->rkey},
               {both.host(2), both.b().address(64 + segment_bytes_max), 100, both.b().mr->rkey}});
}

TEST_CASE("a simulation hears of the data of a READ at its requester, without a key",
          "[simulation]") {
  far_pair both;
  both.send(one_sided(IBV_WR_RDMA_READ, both.b()),
            {both.a().piece(0, 100), both.a().piece(400, 50)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(both.world.writes == writes{{both.host(1), both.a().address(0), 100, 0},
                                    {both.host(1), both.a().address(400), 50, 0}});
}

TEST_CASE("a simulation hears of an atomic's word at both ends", "[simulation]") {
  far_pair both;
  both.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, both.b(), 16, 5), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  const writes fetched{{both.host(2), both.b().address(16), 8, both.b().mr->rkey},
                       {both.host(1), both.a().address(0), 8, 0}};
  CHECK(both.world.writes == fetched);
  both.world.writes.clear();
  both.send(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, both.b(), 16, 5, 6), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(both.world.writes == fetched);
}

TEST_CASE("a simulation hears of the word of an ATOMIC WRITE at its responder only",
          "[simulation]") {
  far_pair both;
  both.send(one_sided(IBV_WR_ATOMIC_WRITE, both.b(), 16), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(both.world.writes == writes{{both.host(2), both.b().address(16), 8, both.b().mr->rkey}});
}

TEST_CASE("a simulation hears of a received message, without a key", "[simulation]") {
  far_pair both;
  receive(both, 64);
  both.send(request(IBV_WR_SEND), {both.a().piece(0, 50)});
  CHECK(both.completion(2).status == IBV_WC_SUCCESS);
  CHECK(both.world.writes == writes{{both.host(2), both.b().address(0), 50, 0}});
}

TEST_CASE("a simulation hears of inline data as of any other, and of no empty message",
          "[simulation]") {
  far_pair both;
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b(), 0, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE),
            {both.a().piece(0, 20)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(both.world.writes == writes{{both.host(2), both.b().address(0), 20, both.b().mr->rkey}});
  both.world.writes.clear();
  receive(both, 64);
  both.send(request(IBV_WR_RDMA_WRITE_WITH_IMM), {});
  CHECK(both.completion(2).opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(both.world.writes.empty());
}

TEST_CASE("a simulation hears of a datagram's route and of its bytes", "[simulation]") {
  far_pair both{{.type = IBV_QPT_UD}};
  receive(both, 100);
  const on_host here{both.host(1)};
  ibv_ah_attr path = side::path();
  path.grh.dgid = plain_world::gid_of(2);
  ibv_ah* const ah = verb::create_ah(both.a().pd, &path);
  REQUIRE(ah != nullptr);
  ibv_send_wr wr = request(IBV_WR_SEND);
  wr.wr.ud = {.ah = ah, .remote_qpn = both.b().qp->qp_num, .remote_qkey = 0x1234};
  both.send(wr, {both.a().piece(0, 30)});
  CHECK(both.completion(2).byte_len == 70);
  CHECK(both.world.writes == writes{{both.host(2), both.b().address(0), 40, 0},
                                    {both.host(2), both.b().address(40), 30, 0}});
  CHECK(verb::destroy_ah(ah) == 0);
}

TEST_CASE("a simulation hears of what a host writes into its own memory by its own device",
          "[simulation]") {
  one_host only;
  side& own = *only.own;
  const std::uint32_t key = own.mr->rkey;
  softverbs_host* const host = only.world.hosts[0];
  only.send(one_sided(IBV_WR_RDMA_WRITE, own, 64), {own.piece(0, 10)});
  only.send(one_sided(IBV_WR_RDMA_READ, own, 64), {own.piece(128, 20)});
  only.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, own, 256, 1), {own.piece(264, 8)});
  CHECK(only.world.writes == writes{{host, own.address(64), 10, key},
                                    {host, own.address(128), 20, 0},
                                    {host, own.address(256), 8, key},
                                    {host, own.address(264), 8, 0}});
  only.world.writes.clear();
  REQUIRE(own.receive(9, {own.piece(512, 64)}) == 0);
  only.send(request(IBV_WR_SEND), {own.piece(0, 40)});
  CHECK(only.world.writes == writes{{host, own.address(512), 40, 0}});
}

TEST_CASE("a simulation hears of no WRITE that was refused", "[simulation]") {
  far_pair both{{.mr_access = IBV_ACCESS_LOCAL_WRITE}};
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 10)});
  CHECK(both.completion(1).status == IBV_WC_REM_ACCESS_ERR);
  CHECK(both.world.writes.empty());
}
