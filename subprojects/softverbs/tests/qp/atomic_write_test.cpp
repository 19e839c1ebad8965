#include "pair.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <thread>

using namespace softverbs;
using namespace softverbs::test;

namespace {

constexpr std::uint64_t by_wr_api = IBV_QP_EX_WITH_ATOMIC_WRITE | IBV_QP_EX_WITH_RDMA_WRITE;

std::uint64_t& word_of(side& one, std::size_t at) {
  return *reinterpret_cast<std::uint64_t*>(&one.memory[at]);
}

/// Posts by ibv_wr_atomic_write.
int write_word(side& from, const side& to, std::size_t at, std::uint64_t word,
               unsigned flags = IBV_SEND_SIGNALED) {
  ibv_qp_ex* const qp = verb::qp_to_qp_ex(from.qp);
  ibv_wr_start(qp);
  qp->wr_id = 9;
  qp->wr_flags = flags;
  ibv_wr_atomic_write(qp, to.mr->rkey, to.address(at), &word);
  word = 0;  // The word was taken.
  return ibv_wr_complete(qp);
}

/// Posts one by a list of this memory, and returns how it ends.
ibv_wc_status end_of(pair& ends, const std::vector<ibv_sge>& list, std::size_t at = 64) {
  REQUIRE(ends.a.send(one_sided(IBV_WR_ATOMIC_WRITE, ends.b, at), list) == 0);
  return ends.a.await().status;
}

}  // namespace

TEST_CASE("an ATOMIC WRITE replaces eight bytes, by ibv_wr_* and by a list", "[qp]") {
  pair ends{{.operations = by_wr_api}};
  constexpr std::uint64_t word = 0x0123456789abcdef;
  ends.b.fill(0, 256, 3);
  const std::vector<std::byte> before = ends.b.memory;
  SECTION("ibv_wr_atomic_write") { REQUIRE(write_word(ends.a, ends.b, 64, word) == 0); }
  SECTION("two pieces of a list") {
    std::memcpy(&ends.a.memory[0], &word, 3);
    std::memcpy(&ends.a.memory[100], reinterpret_cast<const std::byte*>(&word) + 3, 5);
    REQUIRE(ends.a.send(one_sided(IBV_WR_ATOMIC_WRITE, ends.b, 64, 9),
                        {ends.a.piece(0, 3), ends.a.piece(100, 5)}) == 0);
  }
  const ibv_wc wc = ends.a.await();
  CHECK(wc.status == IBV_WC_SUCCESS);
  CHECK(wc.opcode == IBV_WC_ATOMIC_WRITE);
  CHECK(wc.wr_id == 9);
  CHECK(wc.byte_len == 8);
  CHECK(word_of(ends.b, 64) == word);
  CHECK(std::equal(before.begin(), before.begin() + 64, ends.b.memory.begin()));
  CHECK(std::equal(before.begin() + 72, before.end(), ends.b.memory.begin() + 72));
  CHECK(ends.b.is_quiet());
}

TEST_CASE("an ATOMIC WRITE is executed in the order of the requests", "[qp]") {
  pair ends{{.operations = by_wr_api}};
  word_of(ends.a, 0) = 1;
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 64, 1, 0), {ends.a.piece(0, 8)}) == 0);
  REQUIRE(write_word(ends.a, ends.b, 64, 2, 0) == 0);
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_READ, ends.b, 64, 1, 0), {ends.a.piece(8, 8)}) == 0);
  REQUIRE(ends.a.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, ends.b, 64, 5), {ends.a.piece(16, 8)}) ==
          0);
  CHECK(ends.a.await().opcode == IBV_WC_FETCH_ADD);
  CHECK(word_of(ends.a, 8) == 2);
  CHECK(word_of(ends.a, 16) == 2);
  CHECK(word_of(ends.b, 64) == 7);
}

TEST_CASE("a processor that reads never sees a part of an ATOMIC WRITE", "[qp]") {
  pair ends{{.operations = by_wr_api}};
  std::atomic_ref<std::uint64_t> word{word_of(ends.b, 64)};
  std::atomic<bool> is_over{false};
  std::atomic<std::uint64_t> torn{0};
  std::thread reader{[&] {
    while (!is_over.load()) {
      const std::uint64_t seen = word.load();
      if (seen != 0 && seen != ~std::uint64_t{0}) torn = seen;
    }
  }};
  for (int i = 0; i < 5000; ++i) {
    const bool is_posted = write_word(ends.a, ends.b, 64, i % 2 == 0 ? ~std::uint64_t{0} : 0) == 0;
    if (!is_posted || ends.a.await().status != IBV_WC_SUCCESS) torn = 1;
  }
  is_over = true;
  reader.join();
  CHECK(torn.load() == 0);
}

TEST_CASE("an ATOMIC WRITE that is wrong here fails here", "[qp]") {
  SECTION("of too few bytes, or too many") {
    pair ends;
    const std::size_t bytes = GENERATE(0u, 4u, 16u);
    CHECK(end_of(ends, {ends.a.piece(0, bytes)}) == IBV_WC_LOC_LEN_ERR);
    CHECK(ends.b.state() == IBV_QPS_RTS);
  }
  SECTION("of memory that may not be read") {
    pair ends;
    ibv_sge list = ends.a.piece(0, 8);
    list.lkey ^= 1;
    CHECK(end_of(ends, {list}) == IBV_WC_LOC_PROT_ERR);
  }
  SECTION("without a place for its answer") {
    pair ends{{.rd_atomic = 0}};
    CHECK(end_of(ends, {ends.a.piece(0, 8)}) == IBV_WC_LOC_QP_OP_ERR);
  }
}

TEST_CASE("an ATOMIC WRITE needs an aligned word that the peer lets be written", "[qp]") {
  SECTION("an address that is not aligned") {
    pair ends;
    CHECK(end_of(ends, {ends.a.piece(0, 8)}, 60) == IBV_WC_REM_INV_REQ_ERR);
  }
  SECTION("a queue pair without write access") {
    pair ends{{.qp_access = IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ}};
    CHECK(end_of(ends, {ends.a.piece(0, 8)}) == IBV_WC_REM_INV_REQ_ERR);
  }
  SECTION("a peer that serves no READs and atomics") {
    pair ends;
    ends.b.inner().terms.dest_rd_atomic_max = 0;
    CHECK(end_of(ends, {ends.a.piece(0, 8)}) == IBV_WC_REM_INV_REQ_ERR);
  }
  SECTION("a key without write access") {
    pair ends{{.mr_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC}};
    CHECK(end_of(ends, {ends.a.piece(0, 8)}) == IBV_WC_REM_ACCESS_ERR);
  }
  SECTION("the end of the memory") {
    pair ends{{.bytes = 4096}};
    CHECK(end_of(ends, {ends.a.piece(0, 8)}, 4096) == IBV_WC_REM_ACCESS_ERR);
  }
}

TEST_CASE("an ATOMIC WRITE needs no right to atomics", "[qp]") {
  constexpr unsigned writes = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  pair ends{{.qp_access = IBV_ACCESS_REMOTE_WRITE, .mr_access = writes}};
  word_of(ends.a, 0) = 5;
  CHECK(end_of(ends, {ends.a.piece(0, 8)}) == IBV_WC_SUCCESS);
  CHECK(word_of(ends.b, 64) == 5);
}
