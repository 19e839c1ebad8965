#include "pair.hpp"

#include <cerrno>

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr std::uint32_t crawl_kbps = 8;  // A kilobyte each second: nothing goes during a test.

int limit(side& of, std::uint32_t kbps, std::uint32_t burst = 0) {
  ibv_qp_rate_limit_attr attr{};
  attr.rate_limit = kbps;
  attr.max_burst_sz = burst;
  return verb::modify_qp_rate_limit(of.qp, &attr);
}

std::uint32_t queried_limit(const side& of) {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  REQUIRE(verb::query_qp(of.qp, &attr, IBV_QP_RATE_LIMIT, &init) == 0);
  return attr.rate_limit;
}

/// Sends `count` messages, each when the one before has completed.
void send_each(pair& ends, const ibv_send_wr& wr, std::size_t bytes, int count) {
  for (int i = 0; i < count; ++i) {
    REQUIRE(ends.a.send(wr, {ends.a.piece(0, bytes)}) == 0);
    REQUIRE(ends.a.await().status == IBV_WC_SUCCESS);
  }
}

}  // namespace

TEST_CASE("a queue pair with a rate limit is never faster", "[qp]") {
  const auto type = GENERATE(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD);
  const auto in_one_list = GENERATE(false, true);
  constexpr std::uint32_t kbps = 400'000, burst = 8192;  // 50 bytes each microsecond.
  pair ends{{.type = type}};
  const std::size_t bytes = type == IBV_QPT_UD ? 4000 : 100'000;
  const int count = type == IBV_QPT_UD ? 250 : 10;
  ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, ends.b);
  ibv_ah* path = nullptr;
  if (type == IBV_QPT_UD) {
    ibv_ah_attr to = side::path();
    path = verb::create_ah(ends.a.pd, &to);
    wr = request(IBV_WR_SEND);
    wr.wr.ud = {path, ends.b.qp->qp_num, 0x1234};
  }
  const auto start = clock::now();
  REQUIRE(limit(ends.a, kbps, burst) == 0);
  if (in_one_list) {
    for (int i = 0; i < 10; ++i) REQUIRE(ends.a.send(wr, {ends.a.piece(0, bytes)}) == 0);
    for (int i = 0; i < 10; ++i) REQUIRE(ends.a.await().status == IBV_WC_SUCCESS);
    send_each(ends, wr, bytes, count - 10);
  } else {
    send_each(ends, wr, bytes, count);
  }
  // The last message need not be paid for before it goes, nor a burst.
  const auto paid = static_cast<std::uint64_t>(count - 1) * bytes - burst;
  CHECK(clock::now() - start >= std::chrono::microseconds{paid / 50});
  if (path != nullptr) CHECK(verb::destroy_ah(path) == 0);
}

TEST_CASE("a message of many pieces waits in its midst, and arrives whole", "[qp]") {
  constexpr std::size_t bytes = 3'000'000;
  pair ends{{.bytes = bytes}};
  ends.a.fill(0, bytes, 3);
  const auto start = clock::now();
  REQUIRE(limit(ends.a, 400'000, 8192) == 0);
  send_each(ends, one_sided(IBV_WR_RDMA_WRITE, ends.b), bytes, 1);
  CHECK(ends.a.memory == ends.b.memory);
  constexpr std::uint64_t piece_max = 256 * 1024;
  CHECK(clock::now() - start >= std::chrono::microseconds{(bytes - piece_max - 8192) / 50});
}

TEST_CASE("what waits for a rate limit goes when the limit is lifted, or is flushed", "[qp]") {
  pair ends;
  REQUIRE(limit(ends.a, crawl_kbps, 1000) == 0);
  const ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, ends.b);
  send_each(ends, wr, 100'000, 1);
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, 8)}) == 0);
  for (int i = 0; i < 100; ++i) REQUIRE(ends.a.is_quiet());
  SECTION("lifted") {
    REQUIRE(limit(ends.a, 0) == 0);
    CHECK(ends.a.await().status == IBV_WC_SUCCESS);
    send_each(ends, wr, 100'000, 10);
  }
  SECTION("another limit") {
    REQUIRE(limit(ends.a, 1'000'000) == 0);
    CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  }
  SECTION("an error") {
    ends.a.to(IBV_QPS_ERR);
    CHECK(ends.a.await().status == IBV_WC_WR_FLUSH_ERR);
  }
}

TEST_CASE("the bytes of a READ are not this side's, and the peer's limit is the peer's", "[qp]") {
  pair ends;
  REQUIRE(limit(ends.a, crawl_kbps, 1000) == 0);
  send_each(ends, one_sided(IBV_WR_RDMA_READ, ends.b), 1'000'000, 5);
  REQUIRE(ends.b.send(one_sided(IBV_WR_RDMA_WRITE, ends.a), {ends.b.piece(0, 1'000'000)}) == 0);
  CHECK(ends.b.await().status == IBV_WC_SUCCESS);
}

TEST_CASE("a rate limit is checked, told, and forgotten by a reset", "[qp]") {
  pair ends;
  CHECK(queried_limit(ends.a) == 0);
  CHECK(limit(ends.a, limits().pacing.qp_rate_limit_max + 1) == EINVAL);
  ibv_qp_rate_limit_attr attr{};
  attr.rate_limit = 1;
  attr.comp_mask = 1;
  CHECK(verb::modify_qp_rate_limit(ends.a.qp, &attr) == EINVAL);
  CHECK(limit(ends.a, crawl_kbps) == 0);
  CHECK(queried_limit(ends.a) == crawl_kbps);
  ends.a.to(IBV_QPS_RESET);
  CHECK(queried_limit(ends.a) == 0);
  CHECK(limit(ends.a, crawl_kbps) == EINVAL);
}
