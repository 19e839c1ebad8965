#include "pair.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <optional>

using namespace softverbs;
using namespace softverbs::test;

namespace {

bool same(const side& one, std::size_t at, const side& other, std::size_t other_at,
          std::size_t bytes) {
  return std::memcmp(&one.memory[at], &other.memory[other_at], bytes) == 0;
}

std::uint64_t word_at(const side& one, std::size_t at) {
  std::uint64_t word = 0;
  std::memcpy(&word, &one.memory[at], sizeof word);
  return word;
}

}  // namespace

TEST_CASE("a SEND arrives with its bytes, its length and its sender's number", "[qp]") {
  pair ends;
  const std::size_t bytes = GENERATE(1u, 1023u, 1024u, 1025u, 300'000u);
  ends.a.fill(0, bytes, 3);
  REQUIRE(ends.b.receive(7, {ends.b.piece(0, 400'000)}) == 0);
  REQUIRE(ends.a.send(request(IBV_WR_SEND, 9), {ends.a.piece(0, bytes)}) == 0);
  const ibv_wc sent = ends.a.await();
  CHECK(sent.status == IBV_WC_SUCCESS);
  CHECK(sent.opcode == IBV_WC_SEND);
  CHECK(sent.wr_id == 9);
  CHECK(sent.qp_num == ends.a.qp->qp_num);
  const ibv_wc received = ends.b.await();
  CHECK(received.status == IBV_WC_SUCCESS);
  CHECK(received.opcode == IBV_WC_RECV);
  CHECK(received.wr_id == 7);
  CHECK(received.byte_len == bytes);
  CHECK(received.qp_num == ends.b.qp->qp_num);
  CHECK(received.src_qp == ends.a.qp->qp_num);
  CHECK(received.wc_flags == 0);
  CHECK(same(ends.a, 0, ends.b, 0, bytes));
}

TEST_CASE("immediate data arrives with a SEND and with a WRITE", "[qp]") {
  pair ends;
  ends.a.fill(0, 64, 5);
  REQUIRE(ends.b.receive(1, {ends.b.piece(512, 64)}) == 0);
  REQUIRE(ends.b.receive(2) == 0);
  ibv_send_wr wr = request(IBV_WR_SEND_WITH_IMM);
  wr.imm_data = 0xdeadbeef;
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, 64)}) == 0);
  wr = one_sided(IBV_WR_RDMA_WRITE_WITH_IMM, ends.b, 1024, 2);
  wr.imm_data = 0xcafe;
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, 64)}) == 0);
  const ibv_wc first = ends.b.await();
  CHECK(first.opcode == IBV_WC_RECV);
  CHECK(first.wc_flags == IBV_WC_WITH_IMM);
  CHECK(first.imm_data == 0xdeadbeef);
  const ibv_wc second = ends.b.await();
  CHECK(second.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(second.wc_flags == IBV_WC_WITH_IMM);
  CHECK(second.imm_data == 0xcafe);
  CHECK(second.byte_len == 64);
  CHECK(second.wr_id == 2);
  CHECK(same(ends.a, 0, ends.b, 512, 64));
  CHECK(same(ends.a, 0, ends.b, 1024, 64));
  CHECK(ends.a.await().opcode == IBV_WC_SEND);
  CHECK(ends.a.await().opcode == IBV_WC_RDMA_WRITE);
}

TEST_CASE("a WRITE gathers and a READ scatters, in order", "[qp]") {
  pair ends;
  ends.a.fill(0, 900'000, 1);
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b),
                      {ends.a.piece(10, 3), ends.a.piece(0, 0), ends.a.piece(100, 600'000),
                       ends.a.piece(5, 1)}) == 0);
  CHECK(ends.a.await().opcode == IBV_WC_RDMA_WRITE);
  CHECK(same(ends.a, 10, ends.b, 0, 3));
  CHECK(same(ends.a, 100, ends.b, 3, 600'000));
  CHECK(same(ends.a, 5, ends.b, 600'003, 1));
  ends.b.fill(0, 700'000, 9);
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_READ, ends.b),
                      {ends.a.piece(1, 5), ends.a.piece(50, 650'000)}) == 0);
  const ibv_wc read = ends.a.await();
  CHECK(read.status == IBV_WC_SUCCESS);
  CHECK(read.opcode == IBV_WC_RDMA_READ);
  CHECK(read.byte_len == 650'005);
  CHECK(same(ends.b, 0, ends.a, 1, 5));
  CHECK(same(ends.b, 5, ends.a, 50, 650'000));
  CHECK(ends.b.is_quiet());
}

TEST_CASE("a message of many quanta arrives whole", "[qp]") {
  constexpr std::size_t bytes = 5'000'001;
  const bool reads = GENERATE(false, true);
  pair ends{{.bytes = bytes}};
  (reads ? ends.b : ends.a).fill(0, bytes, 3);
  REQUIRE(ends.a.send(one_sided(reads ? IBV_WR_RDMA_READ : IBV_WR_RDMA_WRITE, ends.b),
                      {ends.a.piece(0, 2'000'000), ends.a.piece(2'000'000, bytes - 2'000'000)}) ==
          0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(ends.a.memory == ends.b.memory);
}

TEST_CASE("inline bytes are taken when they are posted, without a key", "[qp]") {
  pair ends;
  ends.a.fill(0, 64, 2);
  REQUIRE(ends.b.receive(1, {ends.b.piece(0, 64)}) == 0);
  ibv_sge list = ends.a.piece(0, 64);
  list.lkey = 0;
  REQUIRE(ends.a.send(request(IBV_WR_SEND, 1, IBV_SEND_SIGNALED | IBV_SEND_INLINE), {list}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(ends.b.await().byte_len == 64);
  CHECK(same(ends.a, 0, ends.b, 0, 64));
}

TEST_CASE("a message of no bytes looks at no address and no key", "[qp]") {
  pair ends;
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
  wr.wr.rdma.rkey = 0xffffffff;
  REQUIRE(ends.a.send(wr) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  wr.opcode = IBV_WR_RDMA_READ;
  REQUIRE(ends.a.send(wr) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  REQUIRE(ends.b.receive(3) == 0);
  REQUIRE(ends.a.send(request(IBV_WR_SEND)) == 0);
  CHECK(ends.b.await().byte_len == 0);
}

TEST_CASE("atomics return what was there, and wrap", "[qp]") {
  pair ends;
  const std::uint64_t start = ~std::uint64_t{0};
  std::memcpy(&ends.b.memory[64], &start, sizeof start);
  REQUIRE(ends.a.send(atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, ends.b, 64, 3), {ends.a.piece(0, 8)}) ==
          0);
  const ibv_wc added = ends.a.await();
  CHECK(added.opcode == IBV_WC_FETCH_ADD);
  CHECK(added.byte_len == 8);
  CHECK(word_at(ends.a, 0) == start);
  CHECK(word_at(ends.b, 64) == 2);
  REQUIRE(ends.a.send(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, ends.b, 64, 2, 77), {ends.a.piece(0, 8)}) ==
          0);
  CHECK(ends.a.await().opcode == IBV_WC_COMP_SWAP);
  CHECK(word_at(ends.a, 0) == 2);
  CHECK(word_at(ends.b, 64) == 77);
  REQUIRE(ends.a.send(atomic(IBV_WR_ATOMIC_CMP_AND_SWP, ends.b, 64, 2, 99), {ends.a.piece(0, 8)}) ==
          0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(word_at(ends.a, 0) == 77);
  CHECK(word_at(ends.b, 64) == 77);
}

TEST_CASE("unsignaled requests complete silently, and a later CQE frees their WQEs", "[qp]") {
  pair ends;
  for (int round = 0; round < 5; ++round) {
    for (std::uint64_t i = 0; i < 31; ++i)
      REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, i, 0), {ends.a.piece(0, 8)}) ==
              0);
    CHECK(ends.a.is_quiet());
    REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, 99), {ends.a.piece(0, 8)}) == 0);
    CHECK(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 8)}) == ENOMEM);
    CHECK(ends.a.await().wr_id == 99);
    CHECK(ends.a.is_quiet());
  }
}

TEST_CASE("a send queue whose WQEs are all free begins with the first again", "[qp]") {
  pair ends;
  queue_pair& sender = ends.a.inner();
  const auto write = [&](unsigned flags) {
    ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, 1);
    wr.send_flags = flags;
    REQUIRE(ends.a.send(wr, {ends.a.piece(0, 8)}) == 0);
    return &sender.request(sender.sends.posted - 1);
  };
  const send_request* const first = write(IBV_SEND_SIGNALED);
  const send_request* const second = write(0);
  CHECK(second != first);
  ends.a.await();
  CHECK(write(IBV_SEND_SIGNALED) != first);  // The second's was not polled, and is not free.
  ends.a.await();
  CHECK(write(IBV_SEND_SIGNALED) == first);
  ends.a.await();
}

TEST_CASE("of requests that are posted together, one that must wait keeps back no other's end",
          "[qp]") {
  pair ends{{.rnr_retry = 7}};
  constexpr std::uint64_t count = 24, long_one = 5, unsignaled = 9, taken = 21;
  std::array<ibv_send_wr, count> wrs;
  std::array<ibv_sge, count> pieces;
  for (std::uint64_t i = 0; i < count; ++i) {
    wrs[i] = request(IBV_WR_SEND, i, i == unsignaled ? 0 : IBV_SEND_SIGNALED);
    pieces[i] = ends.a.piece(0, i == long_one ? 10'000 : 8);
    wrs[i].sg_list = &pieces[i];
    wrs[i].num_sge = 1;
    wrs[i].next = i + 1 < count ? &wrs[i + 1] : nullptr;
  }
  const auto receive = [&] { REQUIRE(ends.b.receive(0, {ends.b.piece(0, 10'000)}) == 0); };
  const auto ended = [&](std::uint64_t from, std::uint64_t to) {
    for (std::uint64_t i = from; i < to; ++i) {
      if (i == unsignaled) continue;
      const ibv_wc wc = ends.a.await();
      CHECK(wc.wr_id == i);
      CHECK(wc.status == IBV_WC_SUCCESS);
    }
    CHECK(ends.a.is_quiet());
  };
  for (std::uint64_t i = 0; i < taken; ++i) receive();
  ibv_send_wr* bad = nullptr;
  REQUIRE(verb::post_send(ends.a.qp, wrs.data(), &bad) == 0);
  ended(0, taken);
  for (std::uint64_t i = taken; i < count; ++i) receive();
  ended(taken, count);
}

TEST_CASE("a queue pair that signals all does so unasked", "[qp]") {
  pair ends{{.signal_all = true}};
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, 4, 0), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().wr_id == 4);
}

TEST_CASE("a queue pair connected to itself sends to itself", "[qp]") {
  side self{pair_options{}};
  self.to_init();
  self.to_rtr(self.qp->qp_num, 5);
  self.to_rts(5);
  self.fill(0, 100, 1);
  REQUIRE(self.receive(1, {self.piece(1000, 100)}) == 0);
  REQUIRE(self.send(request(IBV_WR_SEND, 2), {self.piece(0, 100)}) == 0);
  CHECK(self.await().status == IBV_WC_SUCCESS);
  CHECK(self.await().status == IBV_WC_SUCCESS);
  REQUIRE(self.send(one_sided(IBV_WR_RDMA_READ, self), {self.piece(2000, 100)}) == 0);
  CHECK(self.await().status == IBV_WC_SUCCESS);
  CHECK(same(self, 0, self, 1000, 100));
  CHECK(same(self, 0, self, 2000, 100));
}

TEST_CASE("one doorbell of a queue pair connected to itself may fail in its middle", "[qp]") {
  side self{pair_options{}};
  self.to_init();
  self.to_rtr(self.qp->qp_num, 5);
  self.to_rts(5);
  REQUIRE(self.receive(9, {self.piece(1000, 8)}) == 0);
  ibv_sge from = self.piece(0, 8);
  std::array<ibv_send_wr, 4> wrs;
  for (std::size_t i = 0; i < wrs.size(); ++i) {
    wrs[i] = one_sided(IBV_WR_RDMA_WRITE, self, 2000, i);
    wrs[i].sg_list = &from;
    wrs[i].num_sge = 1;
    wrs[i].next = i + 1 < wrs.size() ? &wrs[i + 1] : nullptr;
  }
  wrs[1].wr.rdma.rkey ^= 1;
  ibv_send_wr* bad = nullptr;
  REQUIRE(verb::post_send(self.qp, wrs.data(), &bad) == 0);
  std::array<ibv_wc_status, 4> ends{};
  std::optional<ibv_wc_status> received;
  for (std::size_t i = 0; i < wrs.size() + 1; ++i) {
    const ibv_wc wc = self.await();
    if (wc.wr_id == 9)
      received = wc.status;
    else
      ends.at(wc.wr_id) = wc.status;
  }
  CHECK(ends == std::array{IBV_WC_SUCCESS, IBV_WC_REM_ACCESS_ERR, IBV_WC_WR_FLUSH_ERR,
                           IBV_WC_WR_FLUSH_ERR});
  CHECK(received == IBV_WC_WR_FLUSH_ERR);
}

TEST_CASE("the first message to a QP that is ready to receive raises COMM_EST once", "[qp]") {
  side a{pair_options{}};
  side b{pair_options{}};
  for (side* one : {&a, &b}) one->to_init();
  a.to_rtr(b.qp->qp_num, 1);
  b.to_rtr(a.qp->qp_num, 1);
  a.to_rts(1);
  for (int i = 0; i < 2; ++i) {
    REQUIRE(a.send(one_sided(IBV_WR_RDMA_WRITE, b), {a.piece(0, 8)}) == 0);
    CHECK(a.await().status == IBV_WC_SUCCESS);
  }
  ibv_async_event event{};
  REQUIRE(b.next_event(event));
  CHECK(event.event_type == IBV_EVENT_COMM_EST);
  CHECK(event.element.qp == b.qp);
  CHECK_FALSE(b.next_event(event));
}

TEST_CASE("a drained send queue starts nothing, tells once, and goes on in RTS", "[qp]") {
  pair ends;
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  REQUIRE(verb::modify_qp(ends.a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.is_quiet());
  CHECK(ends.a.events() == std::vector{IBV_EVENT_SQ_DRAINED});
  ends.a.to(IBV_QPS_RTS);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
}

TEST_CASE("a send queue drains what it has begun, though that must be sent again", "[qp]") {
  pair ends{{.rnr_retry = 7}};  // 7 tries for ever.
  side& a = ends.a;
  REQUIRE(a.send(request(IBV_WR_SEND), {a.piece(0, 8)}) == 0);
  a.settle([&] {
    const std::lock_guard lock{a.inner().slot->send};
    return a.inner().requester.waits;
  });
  ibv_qp_attr attr{};
  attr.qp_state = IBV_QPS_SQD;
  attr.en_sqd_async_notify = 1;
  REQUIRE(verb::modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY) == 0);
  REQUIRE(a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b), {a.piece(0, 8)}) == 0);
  CHECK(a.is_quiet());
  CHECK(a.events().empty());
  // Over another link, requests would overtake the answers.
  attr.ah_attr = side::path();
  CHECK(verb::modify_qp(a.qp, &attr, IBV_QP_STATE | IBV_QP_AV) == EINVAL);
  REQUIRE(ends.b.receive(1, {ends.b.piece(0, 8)}) == 0);
  CHECK(a.await().opcode == IBV_WC_SEND);
  ibv_async_event told{};
  a.settle([&] { return a.next_event(told); });
  CHECK(told.event_type == IBV_EVENT_SQ_DRAINED);
  CHECK(a.is_quiet());  // No request begins meanwhile.
  a.to(IBV_QPS_RTS);
  CHECK(a.await().opcode == IBV_WC_RDMA_WRITE);
}

TEST_CASE("UC sends and writes, and loses what nobody takes", "[qp]") {
  const bool shared = GENERATE(false, true);  // An SRQ serves as well as the queue pair's own.
  pair ends{{.type = IBV_QPT_UC, .srq = shared}};
  ends.a.fill(0, 300'000, 4);
  REQUIRE(ends.a.send(request(IBV_WR_SEND), {ends.a.piece(0, 64)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  ends.b.settle([&] { return ends.b.was_reached(); });
  CHECK(ends.b.is_quiet());
  REQUIRE(ends.b.receive(1, {ends.b.piece(0, 300'000)}) == 0);
  REQUIRE(ends.a.send(request(IBV_WR_SEND), {ends.a.piece(0, 300'000)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(ends.b.await().byte_len == 300'000);
  CHECK(same(ends.a, 0, ends.b, 0, 300'000));
  ibv_send_wr bad = one_sided(IBV_WR_RDMA_WRITE, ends.b);
  bad.wr.rdma.rkey ^= 1;
  REQUIRE(ends.a.send(bad, {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(ends.b.state() == IBV_QPS_RTS);
  REQUIRE(ends.a.send(one_sided(IBV_WR_RDMA_WRITE, ends.b, 500'000), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  // Delivered or not, UC completes it: wait for a message behind it.
  REQUIRE(ends.b.receive(2) == 0);
  REQUIRE(ends.a.send(request(IBV_WR_SEND)) == 0);
  CHECK(ends.b.await().wr_id == 2);
  CHECK(same(ends.a, 0, ends.b, 500'000, 8));
}

TEST_CASE("a UC message that is too long is lost, and its receive serves the next", "[qp]") {
  pair ends{{.type = IBV_QPT_UC}};
  REQUIRE(ends.b.receive(1, {ends.b.piece(0, 8)}) == 0);
  REQUIRE(ends.a.send(request(IBV_WR_SEND), {ends.a.piece(0, 9)}) == 0);
  CHECK(ends.b.is_quiet());
  REQUIRE(ends.a.send(request(IBV_WR_SEND), {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.b.await().wr_id == 1);
}

TEST_CASE("pages on demand are found as they are touched, or fail the request", "[qp]") {
  pair ends;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const unsigned access = all_access | IBV_ACCESS_ON_DEMAND;
  auto* const pages = static_cast<std::byte*>(
      ::mmap(nullptr, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  const bool implicit = GENERATE(false, true);
  const ibv_mr* const mr = implicit ? ends.b.add_region(nullptr, SIZE_MAX, access)
                                    : ends.b.add_region(pages, 2 * page, access);
  ::mprotect(pages, page, PROT_READ | PROT_WRITE);  // After the registration.
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
  wr.wr.rdma.remote_addr = reinterpret_cast<std::uintptr_t>(pages);
  wr.wr.rdma.rkey = mr->rkey;
  ends.a.fill(0, page, 6);
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, page)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  CHECK(std::memcmp(pages, ends.a.memory.data(), page) == 0);
  wr.wr.rdma.remote_addr += page;
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, 8)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_REM_ACCESS_ERR);
  ::munmap(pages, 2 * page);
}

TEST_CASE("a region of a descriptor is the memory of the descriptor", "[qp]") {
  pair ends;
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const int fd = ::memfd_create("softverbs test", MFD_CLOEXEC);
  REQUIRE(::ftruncate(fd, static_cast<off_t>(2 * page)) == 0);
  ibv_mr* const mr = verb::reg_dmabuf_mr(ends.b.pd, page + 8, 64, 8, fd,
                                         IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
  REQUIRE(mr != nullptr);
  ibv_send_wr wr = request(IBV_WR_RDMA_WRITE);
  wr.wr.rdma.remote_addr = 8;
  wr.wr.rdma.rkey = mr->rkey;
  ends.a.fill(0, 64, 6);
  REQUIRE(ends.a.send(wr, {ends.a.piece(0, 64)}) == 0);
  CHECK(ends.a.await().status == IBV_WC_SUCCESS);
  std::array<std::byte, 64> found{};
  CHECK(::pread(fd, found.data(), found.size(), static_cast<off_t>(page + 8)) == 64);
  CHECK(std::memcmp(found.data(), ends.a.memory.data(), found.size()) == 0);
  CHECK(verb::dereg_mr(mr) == 0);
  ::close(fd);
}
