#include "simulation/world.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>

// Hosts that lose their power, and networks that carry nothing.

using namespace softverbs;
using namespace softverbs::test;

namespace {

/// Retries that take 8 times 67 ms.
constexpr pair_options patient{.timeout = 14, .retry_cnt = 7};
constexpr std::int64_t all_tries = 8 * (std::int64_t{4096} << 14);

bool wrote(const far_pair& both, std::size_t bytes) {
  return std::equal(both.a().memory.begin(), both.a().memory.begin() + std::ptrdiff_t(bytes),
                    both.b().memory.begin());
}

void write(far_pair& both, std::size_t bytes = 64) {
  both.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {both.a().piece(0, bytes)});
}

}  // namespace

TEST_CASE("requests to a host without power end after their retries, and its links do not end",
          "[simulation]") {
  far_pair both{patient};
  write(both);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  softverbs_vanish_host(both.host(2));
  const std::int64_t then = both.world.now;
  write(both);
  CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(both.world.now - then == all_tries);
  CHECK(both.world.ending.empty());
}

TEST_CASE("a message for which a host without power has no more room ends after its retries",
          "[simulation]") {
  far_pair both{{.bytes = 3 * ring_bytes, .timeout = 14, .retry_cnt = 7}};
  write(both);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  softverbs_vanish_host(both.host(2));
  write(both, 3 * ring_bytes);
  CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("what a host had sent before it lost its power still arrives", "[simulation]") {
  far_pair both{patient};
  both.a().fill(0, 64, 3);
  write(both);
  both.world.work();
  REQUIRE(both.world.in_flight.size() == 1);
  softverbs_vanish_host(both.host(1));
  REQUIRE(both.world.deliver());
  CHECK(wrote(both, 64));
}

TEST_CASE("a host that was removed after it lost its power is silent to its peers",
          "[simulation]") {
  far_pair both{patient};
  write(both);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  softverbs_vanish_host(both.host(2));
  const ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, both.b());
  both.remove(2);
  both.send(wr, {both.a().piece(0, 64)});
  CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(both.world.ending.empty());
}

TEST_CASE("a host that comes back after it lost its power has new links, and the old ones end",
          "[simulation]") {
  far_pair both{patient};
  write(both);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  softverbs_vanish_host(both.host(2));
  write(both);
  both.world.work();
  both.remove(2);
  std::unique_ptr<side> second = both.come_back(patient);
  {
    const on_host here{both.host(1)};
    second->fill(0, 64, 5);
    REQUIRE(second->send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {second->piece(0, 64)}) == 0);
  }
  both.world.work();
  // The links that each had opened.
  REQUIRE(both.world.ending.size() == 2);
  for (const softverbs_end& end : both.world.ending) CHECK(end.host == both.host(1));
  ibv_wc wc{};
  both.world.run_until([&] {
    const on_host here{both.host(1)};
    return verb::poll_cq(second->cq, 1, &wc) == 1;
  });
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(std::equal(second->memory.begin(), second->memory.begin() + 64, both.b().memory.begin()));
  // The queue pair that the old host had is unknown to the new one.
  CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
  const on_host here{both.host(1)};
  second.reset();
}

TEST_CASE("a link where one of a host without power has been serves later queue pairs",
          "[simulation]") {
  far_pair both{patient};
  write(both);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  softverbs_vanish_host(both.host(2));
  both.remove(2);
  std::unique_ptr<side> second = both.come_back(patient);
  const on_host here{both.host(1)};
  side third{{.peer = plain_world::gid_of(2)}};
  third.to_init();
  third.to_rtr(both.b().qp->qp_num, 0);
  third.to_rts(0);
  // Writes, and gives the end that the request leaves.
  const auto leaves = [&](side& from) {
    REQUIRE(from.send(one_sided(IBV_WR_RDMA_WRITE, both.b()), {from.piece(0, 64)}) == 0);
    both.world.work();
    REQUIRE_FALSE(both.world.in_flight.empty());
    const softverbs_end end = both.world.in_flight.front().first;
    both.world.run();
    return end;
  };
  const softverbs_end first = leaves(*second);
  softverbs_end peer;
  REQUIRE(softverbs_peer_end(&first, &peer) == 1);
  softverbs_end_link(&first);
  softverbs_end_link(&peer);
  const softverbs_end again = leaves(*second);
  CHECK(again.link != first.link);
  CHECK(leaves(third).link == again.link);
  second.reset();
}

TEST_CASE("a request that nothing answers ends when its retries have run out", "[simulation]") {
  far_pair both{patient};
  both.world.is_holding = true;
  const std::int64_t then = both.world.now;
  write(both);
  CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(both.world.now - then == all_tries);
  both.world.is_holding = false;
}

TEST_CASE("a request that nothing answers ends in time although others follow it", "[simulation]") {
  far_pair both{patient};
  both.world.is_holding = true;
  const std::int64_t then = both.world.now;
  for (int n = 0; n < 8; ++n) {
    write(both);
    both.world.work();
    both.world.now += all_tries / 10;
  }
  CHECK(both.completion(1).status == IBV_WC_RETRY_EXC_ERR);
  CHECK(both.world.now - then == all_tries);
  both.world.is_holding = false;
}

TEST_CASE("a request that is answered in time does not end, however late the one before was",
          "[simulation]") {
  far_pair both{patient};
  write(both);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  both.world.now += all_tries - 1000;
  both.a().fill(0, 64, 3);
  write(both);
  both.world.work();
  both.world.now += all_tries - 1;
  both.world.work();
  CHECK_FALSE(wrote(both, 64));
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(wrote(both, 64));
}

TEST_CASE("a request that waits for a receiver to be ready does not end meanwhile",
          "[simulation]") {
  constexpr std::uint8_t rnr_655_ms = 0;
  far_pair both{{.timeout = 14, .retry_cnt = 1, .rnr_retry = 1, .min_rnr_timer = rnr_655_ms}};
  both.send(request(IBV_WR_SEND), {both.a().piece(0, 64)});
  both.world.run();
  REQUIRE(both.world.rnr_naks == 1);
  {
    const on_host here{both.host(2)};
    REQUIRE(both.b().receive(9, {both.b().piece(0, 64)}) == 0);
  }
  const std::int64_t then = both.world.now;
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
  CHECK(both.world.now - then >= 655'360'000);
}

TEST_CASE("a message that takes longer than all tries does not end while its peer takes pieces",
          "[simulation]") {
  far_pair both{{.bytes = 4 * ring_bytes, .timeout = 14, .retry_cnt = 0}};
  const std::int64_t then = both.world.now;
  write(both, 4 * ring_bytes);
  both.world.work();
  while (both.world.deliver()) both.world.now += 1'000'000;
  CHECK(both.world.now - then > 67'000'000);
  CHECK(both.completion(1).status == IBV_WC_SUCCESS);
}
