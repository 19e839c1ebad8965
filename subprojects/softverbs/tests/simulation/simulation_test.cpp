#include "simulation/world.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>

using namespace softverbs;
using namespace softverbs::test;

namespace {

std::size_t threads() {
  return std::size_t(std::distance(std::filesystem::directory_iterator{"/proc/self/task"}, {}));
}

bool has_bytes_of(const side& from, const side& to, std::size_t bytes) {
  return std::equal(from.memory.begin(), from.memory.begin() + std::ptrdiff_t(bytes),
                    to.memory.begin());
}

}  // namespace

TEST_CASE("two hosts of a simulation exchange messages in one thread", "[simulation]") {
  far_pair both;
  both.a().fill(0, 4096, 3);
  {
    const on_host here{both.host(2)};
    REQUIRE(both.b().receive(9, {both.b().piece(0, 4096)}) == 0);
  }
  both.send(request(IBV_WR_SEND, 5), {both.a().piece(0, 4096)});
  CHECK(both.completion(2).wr_id == 9);
  CHECK(both.completion(1).wr_id == 5);
  CHECK(has_bytes_of(both.a(), both.b(), 4096));
  CHECK(threads() == 1);
}

TEST_CASE("in a simulation WRITEs, READs and atomics reach the other host's memory",
          "[simulation]") {
  far_pair both;
  both.a().fill(0, 100'000, 3);
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 100'000)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(has_bytes_of(both.a(), both.b(), 100'000));
  std::ranges::fill(both.a().memory, std::byte{});
  both.send(one_sided(IBV_WR_RDMA_READ, both.b()), {both.a().piece(0, 100'000)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(has_bytes_of(both.a(), both.b(), 100'000));
  const auto before = *reinterpret_cast<std::uint64_t*>(both.b().memory.data());
  both.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, both.b(), 0, 5), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(*reinterpret_cast<std::uint64_t*>(both.b().memory.data()) == before + 5);
}

TEST_CASE("a message longer than a link's ring waits for space that the peer makes",
          "[simulation]") {
  far_pair both{{.bytes = 3 * ring_bytes}};
  both.a().fill(0, 3 * ring_bytes, 3);
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 3 * ring_bytes)});
  CHECK(both.world.in_flight.size() <= ring_bytes / segment_bytes_max);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(has_bytes_of(both.a(), both.b(), 3 * ring_bytes));
}

TEST_CASE("of a WRITE whose first frame has arrived, the first bytes are there", "[simulation]") {
  far_pair both;
  both.a().fill(0, 3 * segment_bytes_max, 3);
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 3 * segment_bytes_max)});
  both.world.work();
  REQUIRE(both.world.in_flight.size() == 3);
  CHECK(both.b().memory[0] == std::byte{});
  REQUIRE(both.world.deliver());
  CHECK(has_bytes_of(both.a(), both.b(), segment_bytes_max));
  CHECK(both.b().memory[segment_bytes_max] == std::byte{});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
}

TEST_CASE("requests to a host that was killed end after their retries, in simulated time",
          "[simulation]") {
  far_pair both{{.timeout = 18, .retry_cnt = 7}};  // 1.07 s each
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  softverbs_kill_host(both.host(2));
  const std::int64_t then = both.world.now;
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 8)});
  CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(both.world.now - then > 8'000'000'000);
}

TEST_CASE("a frame arrives although its sender is gone", "[simulation]") {
  far_pair both;
  both.a().fill(0, 64, 3);
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 64)});
  both.world.work();
  REQUIRE(both.world.in_flight.size() == 1);
  softverbs_kill_host(both.host(1));
  REQUIRE(both.world.deliver());
  CHECK(has_bytes_of(both.a(), both.b(), 64));
}

TEST_CASE("a host that was removed is no peer any more", "[simulation]") {
  far_pair both;
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 64)});
  both.world.work();
  REQUIRE(both.world.in_flight.size() == 1);
  const softverbs_end from = both.world.in_flight.front().first;
  softverbs_end peer;
  REQUIRE(softverbs_peer_end(&from, &peer) == 1);
  both.remove(2);
  CHECK(softverbs_peer_end(&from, &peer) == 0);
  softverbs_deliver(&from);
}

TEST_CASE("the answer to a message for which no receive was posted is told", "[simulation]") {
  const auto [opcode, is_ready, naks] =
      GENERATE(table<ibv_wr_opcode, bool, unsigned>({{IBV_WR_SEND, false, 1},
                                                     {IBV_WR_SEND, true, 0},
                                                     {IBV_WR_RDMA_WRITE_WITH_IMM, false, 1},
                                                     {IBV_WR_RDMA_WRITE, false, 0}}));
  far_pair both;
  if (is_ready) {
    const on_host here{both.host(2)};
    REQUIRE(both.b().receive(9, {both.b().piece(0, 64)}) == 0);
  }
  both.send(one_sided(opcode, both.b()), {both.a().piece(0, 64)});
  both.world.run();
  CHECK(both.world.rnr_naks == naks);
}

TEST_CASE("a refusal for another reason is no answer of a receiver that is not ready",
          "[simulation]") {
  far_pair both;
  ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, both.b());
  wr.wr.rdma.rkey ^= 1;
  both.send(wr, {both.a().piece(0, 64)});
  CHECK(both.completion(1).status == IBV_WC_REM_ACCESS_ERR);
  CHECK(both.world.rnr_naks == 0);
}

TEST_CASE("a link that ends before a request was answered is opened again", "[simulation]") {
  far_pair both{{.timeout = 14, .retry_cnt = 7}};
  both.a().fill(0, 64, 3);
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, 64)});
  both.world.work();
  REQUIRE(both.world.in_flight.size() == 1);
  softverbs_end peer;
  const softverbs_end from = both.world.in_flight.front().first;
  both.world.in_flight.clear();
  REQUIRE(softverbs_peer_end(&from, &peer) == 1);
  softverbs_end_link(&peer);
  softverbs_end_link(&from);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(has_bytes_of(both.a(), both.b(), 64));
}

TEST_CASE("a datagram that a simulation loses is not received, and its sender does not know",
          "[simulation]") {
  far_pair both{{.type = IBV_QPT_UC}};
  {
    const on_host here{both.host(2)};
    REQUIRE(both.b().receive(9, {both.b().piece(0, 64)}) == 0);
  }
  both.a().fill(0, 64, 3);
  const auto send_one = [&](std::uint64_t id) {
    both.send(request(IBV_WR_SEND, id), {both.a().piece(0, 64)});
    both.world.work();
  };
  send_one(5);
  REQUIRE(both.world.in_flight.size() == 1);
  REQUIRE(both.world.in_flight.front().second.may_be_lost == 1);
  softverbs_lose(&both.world.in_flight.front().first);
  both.world.in_flight.clear();
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  both.world.run();
  CHECK(both.b().memory[0] == std::byte{});
  send_one(6);
  CHECK(both.completion(1).wr_id == 6);
  CHECK(both.completion(2).wr_id == 9);
}

TEST_CASE("the same calls give the same frames", "[simulation]") {
  const auto traced = [] {
    far_pair both;
    both.send(one_sided(IBV_WR_RDMA_READ, both.b()), {both.a().piece(0, 200'000)});
    static_cast<void>(both.completion(1));
    return both.world.trace;
  };
  const std::string first = traced();
  CHECK(first.size() > 100);
  CHECK(traced() == first);
}

TEST_CASE("a host with an open device cannot be removed, and wrong arguments make none",
          "[simulation]") {
  far_pair both;
  CHECK(softverbs_remove_host(both.host(1)) == EBUSY);
  const softverbs_world calls{};
  const ibv_gid gid = plain_world::gid_of(1);
  CHECK(softverbs_add_host(&calls, &gid, 0, 1, 7) == nullptr);
  CHECK(errno == EINVAL);
  CHECK(softverbs_add_host(&calls, &gid, 1, 1024, 7) == nullptr);
  CHECK(softverbs_add_host(&calls, &gid, gids_max + 1, 1, 7) == nullptr);
  for (const std::uint32_t link_bytes :
       {1u, 256 * 1024u - 64, 256 * 1024u + 1, 1024 * 1024u + 64}) {
    softverbs_world with_links{};
    with_links.link_bytes = link_bytes;
    CHECK(softverbs_add_host(&with_links, &gid, 1, 1, 7) == nullptr);
    CHECK(errno == EINVAL);
  }
}
