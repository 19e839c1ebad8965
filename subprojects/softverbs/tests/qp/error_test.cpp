#include "memory/guarded_copy.hpp"
#include "pair.hpp"

#include <sys/mman.h>

using namespace softverbs;
using namespace softverbs::test;

namespace {

/// Makes accesses fail as if the memory were unmapped; but no other mapping comes to lie there.
int take_away(void* at, std::size_t bytes) { return ::mprotect(at, bytes, PROT_NONE); }

/// The request failed with `status`, what was posted after it flushed, and so did a receive.
void expect_failure(pair& ends, const ibv_send_wr& wr, const std::vector<ibv_sge>& list,
                    ibv_wc_status status) {
  ibv_send_wr next = request(IBV_WR_SEND, 1000, 0);
  ibv_send_wr first = wr;
  std::vector<ibv_sge> copy = list;
  first.sg_list = copy.data();
  first.num_sge = static_cast<int>(copy.size());
  first.next = &next;
  ibv_send_wr* bad = nullptr;
  REQUIRE(ends.a.receive(2000) == 0);
  REQUIRE(verb::post_send(ends.a.qp, &first, &bad) == 0);
  const ibv_wc failed = ends.a.await();
  CHECK(failed.status == status);
  CHECK(failed.wr_id == wr.wr_id);
  CHECK(failed.qp_num == ends.a.qp->qp_num);
  for (const std::uint64_t id : {1000u, 2000u}) {
    const ibv_wc flushed = ends.a.await();
    CHECK(flushed.status == IBV_WC_WR_FLUSH_ERR);
    CHECK(flushed.wr_id == id);
  }
  CHECK(ends.a.state() == IBV_QPS_ERR);
  REQUIRE(ends.a.send(request(IBV_WR_SEND, 1001)) == 0);
  CHECK(ends.a.await().status == IBV_WC_WR_FLUSH_ERR);
}

/// The requester's failure is its own: `b` has heard of no error, expects what it expected, and has
/// kept its receive, number 5.
void expect_undisturbed(pair& ends, ibv_wr_opcode opcode, std::size_t bytes) {
  CHECK(ends.b.state() == IBV_QPS_RTS);
  CHECK(ends.b.is_quiet());
  ends.revive_a();
  ends.a.fill(0, bytes, 3);
  REQUIRE(ends.a.send(one_sided(opcode, ends.b), {ends.a.piece(0, bytes)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(std::equal(ends.a.memory.data(), ends.a.memory.data() + bytes, ends.b.memory.data()));
  if (opcode != IBV_WR_RDMA_WRITE) CHECK(ends.b.await().wr_id == 5);
  CHECK(ends.b.is_quiet());
  CHECK(ends.b.events().empty());
}

}  // namespace

TEST_CASE("local memory that may not be used ends a request with LOC_PROT", "[qp]") {
  pair ends;
  ibv_sge list = ends.a.piece(0, 64);
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  std::vector<ibv_sge> all;
  SECTION("the key is wrong") { list.lkey ^= 1; }
  SECTION("the range ends outside the region") { list.length = 2 << 20; }
  SECTION("the range begins outside the region") { list.addr -= 1; }
  SECTION("the second entry is wrong") {
    all.push_back(ends.a.piece(0, 8));
    list.lkey ^= 1;
  }
  SECTION("a READ has no local write access") {
    opcode = IBV_WR_RDMA_READ;
    list.lkey = ends.a.add_region(ends.a.memory.data(), 64, IBV_ACCESS_REMOTE_READ)->lkey;
  }
  SECTION("a window's key is no local key") { list.lkey = ends.a.add_window(IBV_MW_TYPE_2)->rkey; }
  all.push_back(list);
  expect_failure(ends, one_sided(opcode, ends.b), all, IBV_WC_LOC_PROT_ERR);
  CHECK(ends.b.memory[0] == std::byte{0});
  CHECK(ends.b.state() == IBV_QPS_RTS);
}

TEST_CASE("local memory that is unmapped ends a request with LOC_PROT", "[qp]") {
  install_fault_guard();
  pair ends;
  constexpr std::size_t bytes = 1 << 20;
  void* gone = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(gone != MAP_FAILED);
  const ibv_mr* region = ends.a.add_region(gone, bytes, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(take_away(gone, bytes) == 0);
  const ibv_sge list{reinterpret_cast<std::uint64_t>(gone), bytes / 2, region->lkey};
  const auto opcode = GENERATE(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ);
  expect_failure(ends, one_sided(opcode, ends.b), {list}, IBV_WC_LOC_PROT_ERR);
  CHECK(ends.b.state() == IBV_QPS_RTS);
  ::munmap(gone, bytes);
}

TEST_CASE("a message whose source ends in its middle fails here, and leaves the peer as it was",
          "[qp]") {
  install_fault_guard();
  pair ends;
  constexpr std::size_t bytes = 1 << 20;
  const auto opcode = GENERATE(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND);
  void* half = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(half != MAP_FAILED);
  const ibv_mr* region = ends.a.add_region(half, bytes, IBV_ACCESS_LOCAL_WRITE);
  REQUIRE(::mprotect(static_cast<std::byte*>(half) + bytes / 2, bytes / 2, PROT_NONE) == 0);
  const ibv_sge list{reinterpret_cast<std::uint64_t>(half), bytes, region->lkey};
  REQUIRE(ends.b.receive(5, {ends.b.piece(0, bytes)}) == 0);
  expect_failure(ends, one_sided(opcode, ends.b), {list}, IBV_WC_LOC_PROT_ERR);
  expect_undisturbed(ends, opcode, bytes);
  ::munmap(half, bytes);
}

TEST_CASE("a source that goes while its request is to be sent again ends it with LOC_PROT",
          "[qp]") {
  install_fault_guard();
  pair ends{{.rnr_retry = 7}};
  constexpr std::size_t bytes = 4096;
  void* gone = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(gone != MAP_FAILED);
  const auto at = reinterpret_cast<std::uint64_t>(gone);
  ibv_mr* region = verb::reg_mr(ends.a.pd, gone, bytes, at, IBV_ACCESS_LOCAL_WRITE);
  const auto opcode = GENERATE(IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND);
  const bool unmapped = GENERATE(false, true);
  REQUIRE(ends.a.send(one_sided(opcode, ends.b), {{at, bytes, region->lkey}}) == 0);
  // The peer has no receive. While the requester waits after its NAK, nothing is in flight.
  queue_pair& requester = ends.a.inner();
  ends.a.settle([&] {
    const std::lock_guard lock{requester.slot->send};
    if (!requester.requester.waits) return false;
    REQUIRE((unmapped ? take_away(gone, bytes) : verb::dereg_mr(region)) == 0);
    REQUIRE(ends.b.receive(5, {ends.b.piece(0, bytes)}) == 0);
    return true;
  });
  CHECK(ends.a.await().status == IBV_WC_LOC_PROT_ERR);
  CHECK(ends.a.state() == IBV_QPS_ERR);
  expect_undisturbed(ends, opcode, bytes);
  if (unmapped) CHECK(verb::dereg_mr(region) == 0);
  ::munmap(gone, bytes);
}

TEST_CASE("remote memory that is unmapped ends a request with REM_ACCESS", "[qp]") {
  install_fault_guard();
  pair ends;
  void* gone = ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(gone != MAP_FAILED);
  const ibv_mr* region = ends.b.add_region(gone, 4096, all_access);
  REQUIRE(take_away(gone, 4096) == 0);
  ibv_send_wr wr = one_sided(GENERATE(IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ), ends.b);
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uint64_t>(gone);
  wr.wr.rdma.rkey = region->rkey;
  expect_failure(ends, wr, {ends.a.piece(0, 64)}, IBV_WC_REM_ACCESS_ERR);
  CHECK(ends.b.state() == IBV_QPS_ERR);
  ::munmap(gone, 4096);
}

TEST_CASE("remote memory that was not granted ends both ends with REM_ACCESS", "[qp]") {
  pair ends;
  ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, ends.b);
  ibv_sge list = ends.a.piece(0, 64);
  SECTION("the key is wrong") { wr.wr.rdma.rkey ^= 1; }
  SECTION("one byte too far") { wr.wr.rdma.remote_addr += (1 << 20) - 63; }
  SECTION("one byte too early") { wr.wr.rdma.remote_addr -= 1; }
  SECTION("another PD's") { wr.wr.rdma.rkey = ends.a.mr->rkey; }
  SECTION("no write access") {
    wr.wr.rdma.rkey = ends.b.add_region(ends.b.memory.data(), 64, IBV_ACCESS_REMOTE_READ)->rkey;
  }
  SECTION("no read access") {
    wr.opcode = IBV_WR_RDMA_READ;
    wr.wr.rdma.rkey =
        ends.b
            .add_region(ends.b.memory.data(), 64, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE)
            ->rkey;
  }
  SECTION("no atomic access") {
    wr = atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, ends.b, 0, 1);
    list.length = 8;
    wr.wr.atomic.rkey = ends.b.add_region(ends.b.memory.data(), 64, IBV_ACCESS_REMOTE_READ)->rkey;
  }
  REQUIRE(ends.b.receive(5) == 0);
  expect_failure(ends, wr, {list}, IBV_WC_REM_ACCESS_ERR);
  CHECK(ends.b.await().status == IBV_WC_WR_FLUSH_ERR);
  CHECK(ends.b.state() == IBV_QPS_ERR);
  CHECK(ends.b.events() == std::vector{IBV_EVENT_QP_ACCESS_ERR});
}

TEST_CASE("what the QP does not serve, or cannot be, ends with REM_INV_REQ", "[qp]") {
  pair_options how;
  ibv_wr_opcode opcode = IBV_WR_RDMA_WRITE;
  std::size_t at = 0;
  SECTION("writes are off") { how.qp_access = IBV_ACCESS_REMOTE_READ; }
  SECTION("reads are off") {
    how.qp_access = IBV_ACCESS_REMOTE_WRITE;
    opcode = IBV_WR_RDMA_READ;
  }
  SECTION("atomics are off") {
    how.qp_access = IBV_ACCESS_REMOTE_WRITE;
    opcode = IBV_WR_ATOMIC_FETCH_AND_ADD;
  }
  SECTION("an atomic is not aligned") {
    opcode = IBV_WR_ATOMIC_CMP_AND_SWP;
    at = 4;
  }
  pair ends{how};
  const ibv_send_wr wr = opcode == IBV_WR_RDMA_WRITE || opcode == IBV_WR_RDMA_READ
                             ? one_sided(opcode, ends.b)
                             : atomic(opcode, ends.b, at, 1);
  expect_failure(ends, wr, {ends.a.piece(0, 8)}, IBV_WC_REM_INV_REQ_ERR);
  CHECK(ends.b.state() == IBV_QPS_ERR);
  CHECK(ends.b.events() == std::vector{IBV_EVENT_QP_REQ_ERR});
}

TEST_CASE("a SEND longer than its receive is LOC_LEN there and REM_INV_REQ here", "[qp]") {
  pair ends;
  REQUIRE(ends.b.receive(5, {ends.b.piece(0, 30), ends.b.piece(30, 33)}) == 0);
  REQUIRE(ends.b.receive(6, {ends.b.piece(0, 64)}) == 0);
  expect_failure(ends, request(IBV_WR_SEND), {ends.a.piece(0, 64)}, IBV_WC_REM_INV_REQ_ERR);
  const ibv_wc wc = ends.b.await();
  CHECK(wc.status == IBV_WC_LOC_LEN_ERR);
  CHECK(wc.wr_id == 5);
  CHECK(ends.b.await().status == IBV_WC_WR_FLUSH_ERR);
  CHECK(ends.b.events().empty());
}

TEST_CASE("a faulty receive is LOC_PROT there and REM_OP here", "[qp]") {
  pair ends;
  ibv_sge list = ends.b.piece(0, 64);
  list.lkey ^= 1;
  REQUIRE(ends.b.receive(5, {list}) == 0);
  expect_failure(ends, request(IBV_WR_SEND), {ends.a.piece(0, 64)}, IBV_WC_REM_OP_ERR);
  CHECK(ends.b.await().status == IBV_WC_LOC_PROT_ERR);
  CHECK(ends.b.state() == IBV_QPS_ERR);
}

TEST_CASE("an unsignaled request that fails says so", "[qp]") {
  pair ends;
  ibv_sge list = ends.a.piece(0, 64);
  list.lkey ^= 1;
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, 3, 0), {list}) == 0);
  CHECK(ends.a.await().status == IBV_WC_LOC_PROT_ERR);
}

TEST_CASE("an atomic answers eight bytes, no more, no less", "[qp]") {
  pair ends;
  const std::size_t bytes = GENERATE(4u, 16u);
  expect_failure(ends, atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, ends.b, 0, 1), {ends.a.piece(0, bytes)},
                 IBV_WC_LOC_LEN_ERR);
}

TEST_CASE("without a receive a SEND is tried again, then ends with RNR_RETRY_EXC", "[qp]") {
  pair ends;
  expect_failure(ends, request(IBV_WR_SEND), {ends.a.piece(0, 8)}, IBV_WC_RNR_RETRY_EXC_ERR);
  CHECK(ends.b.state() == IBV_QPS_RTS);
}

TEST_CASE("a receive that comes late is found by the retry, also after many", "[qp]") {
  pair ends{{.rnr_retry = 7}};
  const auto opcode = GENERATE(IBV_WR_SEND, IBV_WR_RDMA_WRITE_WITH_IMM);
  REQUIRE(ends.a.send(one_sided(opcode, ends.b), {ends.a.piece(0, 8)}) == 0);
  for (int i = 0; i < 100; ++i) REQUIRE(ends.a.is_quiet());
  REQUIRE(ends.b.receive(1, {ends.b.piece(0, 8)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(ends.b.await().status == IBV_WC_SUCCESS);
}

TEST_CASE("a peer that does not listen ends a request with RETRY_EXC", "[qp]") {
  pair ends;
  SECTION("it is in the error state") { ends.b.to(IBV_QPS_ERR); }
  SECTION("it was reset") { ends.b.to(IBV_QPS_RESET); }
  SECTION("it is gone") { ends.b.destroy_qp(); }
  SECTION("its number was never given out") { ends.a.inner().terms.peer_qpn ^= 1u << 13; }
  SECTION("its link is cut") { ends.b.inner().disturbed = ends.b.inner().cut = true; }
  SECTION("our link is cut") { ends.a.inner().disturbed = ends.a.inner().cut = true; }
  // A peer that expects a later packet has taken this one, as far as anybody can tell.
  SECTION("it expects an earlier packet") {
    std::uint32_t& expected = ends.b.inner().slot->expected.psn;
    expected = (expected - 1) & psn_mask;
  }
  SECTION("it is connected to another") { ends.b.inner().terms.peer_qpn ^= 1; }
  expect_failure(ends, one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 8)},
                 IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("a link that is whole again within the retries loses nothing", "[qp]") {
  pair ends{{.timeout = 8, .retry_cnt = 7}};
  ends.b.inner().disturbed = ends.b.inner().cut = true;
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.is_quiet());
  ends.b.inner().cut = false;
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
}

TEST_CASE("a post during a timeout has the peer asked again at once", "[qp]") {
  pair ends{{.timeout = 31}};  // Hours.
  ends.b.inner().disturbed = ends.b.inner().cut = true;
  const auto write = [&](std::uint64_t id) {
    REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, id), {ends.a.piece(0, 8)}) == 0);
  };
  write(1);
  CHECK(ends.a.is_quiet());
  ends.b.inner().cut = false;
  CHECK(ends.a.is_quiet());
  write(2);
  CHECK(ends.a.await().wr_id == 1);
  CHECK(ends.a.await().wr_id == 2);
}

TEST_CASE("posts during a timeout neither prolong it nor spend its retries", "[qp]") {
  pair ends{{.timeout = 14, .retry_cnt = 1}};  // Two tries of 67 ms.
  ends.b.inner().disturbed = ends.b.inner().cut = true;
  const auto begin = clock::now();
  std::uint64_t posted = 0;
  ends.a.settle([&] {
    if (posted < 8) {
      REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, ++posted),
                          {ends.a.piece(0, 8)}) == 0);
    }
    return ends.a.state() == IBV_QPS_ERR;
  });
  CHECK(clock::now() - begin >= std::chrono::milliseconds{2 * 67});
  CHECK(ends.a.await().status == IBV_WC_RETRY_EXC_ERR);
}

TEST_CASE("a delayed link keeps each request back, in order", "[qp]") {
  pair ends;
  const auto begin = clock::now();
  ends.a.inner().disturbed = true;
  ends.a.inner().delay_ns = 3'000'000;
  for (std::uint64_t id : {1u, 2u})
    REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, id), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().wr_id == 1);
  CHECK(clock::now() - begin >= std::chrono::milliseconds{3});
  CHECK(ends.a.await().wr_id == 2);
}

TEST_CASE("a test names the status of the next request", "[qp]") {
  pair ends;
  ends.a.inner().disturbed = true;
  SECTION("success, without its effect") {
    ends.a.inner().next_status = IBV_WC_SUCCESS;
    ends.a.fill(0, 8, 1);
    REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 8)}) == 0);
    CHECK(ends.a.await().status == IBV_WC_SUCCESS);
    CHECK(ends.b.memory[1] == std::byte{0});
    REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 8)}) == 0);
    CHECK(ends.a.await().status == IBV_WC_SUCCESS);
    CHECK(ends.b.memory[1] == ends.a.memory[1]);
  }
  SECTION("an error, and what follows it") {
    ends.a.inner().next_status = IBV_WC_REM_ABORT_ERR;
    expect_failure(ends, one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 8)},
                   IBV_WC_REM_ABORT_ERR);
  }
}

TEST_CASE("a full completion queue ends its queue pair", "[qp]") {
  pair ends{{.cqe = 2}};
  const auto capacity = static_cast<std::uint64_t>(ends.a.cq->cqe);
  for (std::uint64_t i = 0; i <= capacity; ++i)
    REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 8)}) == 0);
  ends.a.settle([&] { return ends.a.state() == IBV_QPS_ERR; });
  bool fatal = false;
  for (const ibv_event_type type : ends.a.events()) fatal = fatal || type == IBV_EVENT_QP_FATAL;
  CHECK(fatal);
}

TEST_CASE("a shared receive queue tells of its limit, and of a QP's last request", "[qp]") {
  pair ends{{.srq = true}};
  for (std::uint64_t id : {1u, 2u, 3u}) REQUIRE(ends.b.receive(id, {ends.b.piece(0, 64)}) == 0);
  ibv_srq_attr attr{};
  attr.srq_limit = 2;
  REQUIRE(verb::modify_srq(ends.b.srq, &attr, IBV_SRQ_LIMIT) == 0);
  for (std::uint64_t id : {1u, 2u, 3u}) {
    REQUIRE(ends.a.send(request(IBV_WR_SEND), {ends.a.piece(0, 64)}) == 0);
    CHECK(ends.b.await().wr_id == id);
    CHECK(ends.b.events() ==
          (id == 2 ? std::vector{IBV_EVENT_SRQ_LIMIT_REACHED} : std::vector<ibv_event_type>{}));
  }
  ends.b.to(IBV_QPS_ERR);
  CHECK(ends.b.events() == std::vector{IBV_EVENT_QP_LAST_WQE_REACHED});
  CHECK(ends.b.is_quiet());
}
