#include "qp/xrc_rig.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace softverbs::test {
namespace {

constexpr std::uint32_t long_bytes = 300'000;  // Several pieces, and many segments.

ibv_send_wr remote(ibv_wr_opcode opcode, const xrc_queue& to, std::size_t at = 0) {
  ibv_send_wr wr = request(opcode);
  wr.wr.rdma.remote_addr = to.address(at);
  wr.wr.rdma.rkey = to.mr->rkey;
  return wr;
}

ibv_send_wr remote_atomic(ibv_wr_opcode opcode, const xrc_queue& to, std::uint64_t compare_add,
                          std::uint64_t swap = 0) {
  ibv_send_wr wr = request(opcode);
  wr.wr.atomic.remote_addr = to.address();
  wr.wr.atomic.rkey = to.mr->rkey;
  wr.wr.atomic.compare_add = compare_add;
  wr.wr.atomic.swap = swap;
  return wr;
}

std::uint64_t word(const std::vector<std::byte>& at) {
  std::uint64_t value = 0;
  std::memcpy(&value, at.data(), sizeof value);
  return value;
}

}  // namespace

TEST_CASE("one target takes messages for several queues, each with its completions", "[qp][xrc]") {
  xrc_pair pair;
  pair.from.fill(0, long_bytes, 3);
  pair.near.receive(7, 0, long_bytes);
  pair.other.receive(8, 0, 64);
  REQUIRE(pair.from.post(request(IBV_WR_SEND), pair.near.number,
                         {pair.from.piece(0, long_bytes)}) == 0);
  ibv_send_wr second = request(IBV_WR_SEND_WITH_IMM, 2);
  second.imm_data = 99;
  REQUIRE(pair.from.post(second, pair.other.number, {pair.from.piece(5, 20)}) == 0);
  CHECK(pair.from.await().status == IBV_WC_SUCCESS);
  CHECK(pair.from.await().wr_id == 2);
  const ibv_wc long_one = pair.near.await();
  CHECK(long_one.status == IBV_WC_SUCCESS);
  CHECK(long_one.wr_id == 7);
  CHECK(long_one.byte_len == long_bytes);
  CHECK(long_one.qp_num == pair.target.qp->qp_num);
  CHECK(std::memcmp(pair.near.memory.data(), pair.from.memory.data(), long_bytes) == 0);
  const ibv_wc short_one = pair.other.await();
  CHECK(short_one.wr_id == 8);
  CHECK(short_one.imm_data == 99);
  CHECK(std::memcmp(pair.other.memory.data(), &pair.from.memory[5], 20) == 0);
  CHECK(pair.near.is_quiet());
}

TEST_CASE("ibv_wr_* name the queue as well", "[qp][xrc]") {
  xrc_pair pair{IBV_QP_EX_WITH_SEND};
  pair.from.fill(0, 64, 5);
  pair.other.receive(4, 0, 64);
  ibv_qp_ex* const qp = verb::qp_to_qp_ex(pair.from.qp);
  REQUIRE(qp != nullptr);
  qp->wr_start(qp);
  qp->wr_id = 11;
  qp->wr_flags = IBV_SEND_SIGNALED;
  qp->wr_send(qp);
  qp->wr_set_xrc_srqn(qp, pair.other.number);
  qp->wr_set_sge(qp, pair.from.mr->lkey, pair.from.address(), 64);
  REQUIRE(qp->wr_complete(qp) == 0);
  CHECK(pair.from.await().wr_id == 11);
  CHECK(pair.other.await().wr_id == 4);
  CHECK(std::memcmp(pair.other.memory.data(), pair.from.memory.data(), 64) == 0);
}

TEST_CASE("WRITEs, READs and atomics use the memory of the named queue's domain", "[qp][xrc]") {
  xrc_pair pair;
  const auto run = [&](const ibv_send_wr& wr, const xrc_queue& to, std::uint32_t bytes) {
    REQUIRE(pair.from.post(wr, to.number, {pair.from.piece(0, bytes)}) == 0);
    return pair.from.await().status;
  };
  pair.from.fill(0, long_bytes, 1);
  CHECK(run(remote(IBV_WR_RDMA_WRITE, pair.near), pair.near, long_bytes) == IBV_WC_SUCCESS);
  CHECK(std::memcmp(pair.near.memory.data(), pair.from.memory.data(), long_bytes) == 0);
  pair.near.receive(5, 0, 0);
  ibv_send_wr with_immediate = remote(IBV_WR_RDMA_WRITE_WITH_IMM, pair.near, 8);
  with_immediate.imm_data = 17;
  CHECK(run(with_immediate, pair.near, 64) == IBV_WC_SUCCESS);
  const ibv_wc wc = pair.near.await();
  CHECK(wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM);
  CHECK(wc.imm_data == 17);
  std::fill(pair.from.memory.begin(), pair.from.memory.end(), std::byte{});
  CHECK(run(remote(IBV_WR_RDMA_READ, pair.near), pair.near, long_bytes) == IBV_WC_SUCCESS);
  CHECK(std::memcmp(pair.near.memory.data(), pair.from.memory.data(), long_bytes) == 0);
  const std::uint64_t before = word(pair.near.memory);
  CHECK(run(remote_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, pair.near, 5), pair.near, 8) ==
        IBV_WC_SUCCESS);
  CHECK(word(pair.from.memory) == before);
  CHECK(word(pair.near.memory) == before + 5);
  CHECK(run(remote_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, pair.near, before + 5, 42), pair.near, 8) ==
        IBV_WC_SUCCESS);
  CHECK(word(pair.near.memory) == 42);
  // A key of one queue's domain is none of another's.
  CHECK(run(remote(IBV_WR_RDMA_READ, pair.near), pair.other, 64) == IBV_WC_REM_ACCESS_ERR);
}

TEST_CASE("a number of no queue in the domain is an invalid request", "[qp][xrc]") {
  xrc_pair pair;
  open_domain foreign{pair.ctx};
  const xrc_queue stranger{pair.ctx, foreign.xrcd};
  const auto kind = GENERATE(0, 1, 2);
  stranger.receive(1, 0, 64);
  const std::uint32_t number = kind == 0   ? stranger.number
                               : kind == 1 ? pair.near.number + 1000
                                           : pair.near.number ^ 1u << index_bits;
  const ibv_wr_opcode opcode = GENERATE(IBV_WR_SEND, IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ);
  ibv_send_wr wr = remote(opcode, stranger);
  REQUIRE(pair.from.post(wr, number, {pair.from.piece(0, 64)}) == 0);
  CHECK(pair.from.await().status == IBV_WC_REM_INV_REQ_ERR);
  CHECK(stranger.is_quiet());
  CHECK(pair.target.inner().state == IBV_QPS_ERR);
  CHECK(pair.target.events() == std::vector{IBV_EVENT_QP_REQ_ERR});
}

TEST_CASE("a queue that is gone is an invalid request, also in the middle of a message",
          "[qp][xrc]") {
  xrc_pair pair;
  const std::uint32_t number = pair.near.number;
  pair.near.destroy();
  REQUIRE(pair.from.post(request(IBV_WR_SEND), number, {pair.from.piece(0, 64)}) == 0);
  CHECK(pair.from.await().status == IBV_WC_REM_INV_REQ_ERR);
  CHECK(pair.near.is_quiet());
}

TEST_CASE("an empty queue makes its initiator wait, and ends with RNR_RETRY_EXC", "[qp][xrc]") {
  xrc_pair pair;
  REQUIRE(pair.from.post(request(IBV_WR_SEND), pair.near.number, {pair.from.piece(0, 64)}) == 0);
  CHECK(pair.from.await().status == IBV_WC_RNR_RETRY_EXC_ERR);
}

TEST_CASE("a receive that is too short ends the connection, not the queue", "[qp][xrc]") {
  xrc_pair pair;
  pair.near.receive(1, 0, 16);
  pair.near.receive(2, 0, 64);
  REQUIRE(pair.from.post(request(IBV_WR_SEND), pair.near.number, {pair.from.piece(0, 64)}) == 0);
  CHECK(pair.from.await().status == IBV_WC_REM_INV_REQ_ERR);
  CHECK(pair.near.await().status == IBV_WC_LOC_LEN_ERR);
  xrc_end again{pair.ctx, pair.domain.xrcd}, from{pair.ctx};
  again.connect(from.qp->qp_num, 1, 2);
  from.connect(again.qp->qp_num, 2, 1);
  REQUIRE(from.post(request(IBV_WR_SEND), pair.near.number, {from.piece(0, 64)}) == 0);
  CHECK(from.await().status == IBV_WC_SUCCESS);
  CHECK(pair.near.await().wr_id == 2);
}

TEST_CASE("a queue below its limit says so once", "[qp][xrc]") {
  xrc_pair pair;
  for (std::uint64_t id = 0; id < 3; ++id) pair.near.receive(id, 0, 64);
  ibv_srq_attr attr{};
  attr.srq_limit = 2;
  REQUIRE(verb::modify_srq(pair.near.srq, &attr, IBV_SRQ_LIMIT) == 0);
  for (std::size_t sent = 1; sent <= 3; ++sent) {
    REQUIRE(pair.from.post(request(IBV_WR_SEND), pair.near.number, {pair.from.piece(0, 64)}) == 0);
    CHECK(pair.from.await().status == IBV_WC_SUCCESS);
    CHECK(pair.from.events() ==
          std::vector<ibv_event_type>(sent == 2 ? 1 : 0, IBV_EVENT_SRQ_LIMIT_REACHED));
  }
}

TEST_CASE("a domain is one by its file, and closes when nothing lives in it", "[qp][xrc]") {
  xrc_context soft0;
  const int fd = ::memfd_create("domain", MFD_CLOEXEC);
  const int same_file = ::dup(fd);
  {
    open_domain one{soft0.ctx, fd}, same{soft0.ctx, same_file}, own{soft0.ctx}, other{soft0.ctx};
    CHECK(soft(one.xrcd).id == soft(same.xrcd).id);
    CHECK(soft(one.xrcd).id.is_shared());
    CHECK_FALSE(soft(own.xrcd).id == soft(other.xrcd).id);
    CHECK_FALSE(soft(own.xrcd).id.is_shared());
    errno = 0;
    const open_domain exclusive{soft0.ctx, fd, O_CREAT | O_EXCL};
    CHECK(exclusive.xrcd == nullptr);
    CHECK(errno == EINVAL);
    {
      const xrc_queue queue{soft0.ctx, one.xrcd};
      CHECK(verb::close_xrcd(one.xrcd) == EBUSY);
    }
    const xrc_end target{soft0.ctx, same.xrcd};
    CHECK(verb::close_xrcd(same.xrcd) == EBUSY);
  }
  const open_domain exclusive{soft0.ctx, fd, O_CREAT | O_EXCL};
  CHECK(exclusive.xrcd != nullptr);
  ::close(fd);
  ::close(same_file);
  const open_domain closed{soft0.ctx, fd};
  CHECK(closed.xrcd == nullptr);
  CHECK(errno == EBADF);
}

TEST_CASE("targets and initiators are made of what they need", "[qp][xrc]") {
  xrc_context soft0, foreign;
  const open_domain domain{soft0.ctx}, elsewhere{foreign.ctx};
  ibv_qp_init_attr_ex attr{};
  const auto refused = [&] {
    errno = 0;
    CHECK(verb::create_qp_ex(soft0.ctx, &attr) == nullptr);
    return errno;
  };
  attr.qp_type = IBV_QPT_XRC_RECV;
  CHECK(refused() == EINVAL);  // Without a domain.
  attr.comp_mask = IBV_QP_INIT_ATTR_XRCD;
  attr.xrcd = elsewhere.xrcd;
  CHECK(refused() == EINVAL);
  attr.qp_type = IBV_QPT_XRC_SEND;
  attr.comp_mask = 0;
  CHECK(refused() == EINVAL);  // Without a protection domain.
  const xrc_queue queue{soft0.ctx, domain.xrcd};
  ibv_qp_init_attr with_queue{};
  with_queue.send_cq = with_queue.recv_cq = queue.cq;
  with_queue.srq = queue.srq;
  for (const ibv_qp_type type : {IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD}) {
    with_queue.qp_type = type;
    errno = 0;
    CHECK(verb::create_qp(queue.pd, &with_queue) == nullptr);
    CHECK(errno == EINVAL);
  }
  const xrc_end target{soft0.ctx, domain.xrcd}, from{soft0.ctx};
  CHECK(from.post(request(IBV_WR_SEND), 1) == EINVAL);  // RESET.
  CHECK(target.post(request(IBV_WR_SEND), 1) == EINVAL);
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  CHECK(verb::post_recv(target.qp, &wr, &bad) != 0);
  CHECK(verb::post_recv(from.qp, &wr, &bad) != 0);
}

}  // namespace softverbs::test
