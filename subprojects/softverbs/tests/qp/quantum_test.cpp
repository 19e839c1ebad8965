#include "pair.hpp"
#include "qp/data_path.hpp"

#include <algorithm>
#include <thread>

using namespace softverbs;
using namespace softverbs::test;

// The quantum of a send queue whose peer is in this process: only its bounds end it. A test that
// holds the lock of the queue knows that no other thread executes it.

namespace {

pair_options deep(std::uint32_t requests, std::size_t bytes = 4096) {
  pair_options how;
  how.depth = requests;
  how.cqe = static_cast<int>(requests);
  how.bytes = bytes;
  return how;
}

void enqueue_write(pair& ends, std::uint64_t id, std::size_t bytes) {
  ibv_sge from = ends.a.piece(0, bytes);
  ibv_send_wr wr = one_sided(IBV_WR_RDMA_WRITE, ends.b, 0, id);
  wr.sg_list = &from;
  wr.num_sge = 1;
  REQUIRE(enqueue(ends.a.inner(), wr) == 0);
}

void enqueue_writes(pair& ends, std::uint32_t count) {
  for (std::uint32_t id = 0; id < count; ++id) enqueue_write(ends, id, 8);
}

std::uint64_t left_of(const side& one) {
  return one.inner().sends.posted - one.inner().sends.completed;
}

void await_writes(side& one, std::uint32_t count) {
  for (std::uint32_t id = 0; id < count; ++id) {
    const ibv_wc wc = one.await();
    REQUIRE(wc.status == IBV_WC_SUCCESS);
    REQUIRE(wc.wr_id == id);
  }
}

/// Starts to stop the send queue, which somebody has locked.
std::thread stopping(side& one) {
  std::thread changer{[&one] {
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_SQD;
    verb::modify_qp(one.qp, &attr, IBV_QP_STATE);
  }};
  while (one.inner().slot->changes.load() == 0) std::this_thread::yield();
  return changer;
}

}  // namespace

TEST_CASE("a request of another queue pair is done before a long queue is empty", "[qp]") {
  constexpr std::uint32_t count = 2 * requests_per_quantum + 1;
  pair busy{deep(count)};
  pair other;
  {
    const std::lock_guard lock{busy.a.inner().slot->send};
    enqueue_writes(busy, count);
    execute(busy.a.inner());
    REQUIRE(other.a.send(one_sided(IBV_WR_RDMA_WRITE, other.b), {other.a.piece(0, 8)}) == 0);
    CHECK(other.a.await().status == IBV_WC_SUCCESS);
    CHECK(left_of(busy.a) == count - requests_per_quantum);
  }
  await_writes(busy.a, count);
}

TEST_CASE("a responder stays locked for the brief requests that follow, but not for long", "[qp]") {
  adaptive_mutex first, second;
  const auto is_free = [](adaptive_mutex& m) {
    if (!m.try_lock()) return false;
    m.unlock();
    return true;
  };
  {
    responder_lock lock;
    lock.take(first);
    lock.taken(8, true);
    CHECK_FALSE(is_free(first));
    lock.take(first);
    lock.taken(8, false);
    CHECK(is_free(first));
    lock.take(first);
    lock.taken(piece_bytes_max, true);
    CHECK(is_free(first));
    int in_a_row = 0;
    do {
      lock.take(first);
      lock.taken(8, true);
    } while (++in_a_row < 100 && !is_free(first));
    CHECK(in_a_row == 16);
    lock.take(first);
    lock.take(second);
    CHECK(is_free(first));
    CHECK_FALSE(is_free(second));
  }
  CHECK(is_free(second));
}

TEST_CASE("what a quantum leaves is done also when nobody polls", "[qp]") {
  constexpr std::uint32_t count = 3 * requests_per_quantum;
  pair ends{deep(count)};
  {
    const std::lock_guard lock{ends.a.inner().slot->send};
    enqueue_writes(ends, count);
    execute(ends.a.inner());
  }
  const auto deadline = clock::now() + patience;
  for (bool done = false; !done; std::this_thread::yield()) {
    REQUIRE(clock::now() < deadline);
    const std::lock_guard lock{ends.a.inner().slot->send};
    done = left_of(ends.a) == 0;
  }
  await_writes(ends.a, count);
}

TEST_CASE("a long message goes on in the next quantum", "[qp]") {
  constexpr std::size_t bytes = 2 * bytes_per_quantum + 8;
  pair ends{deep(2, bytes)};
  std::fill(ends.a.memory.begin(), ends.a.memory.end(), std::byte{7});
  {
    const std::lock_guard lock{ends.a.inner().slot->send};
    enqueue_write(ends, 0, bytes);
    execute(ends.a.inner());
    CHECK(left_of(ends.a) == 1);
    CHECK(ends.b.memory[bytes_per_quantum - 1] == std::byte{7});
    CHECK(ends.b.memory[bytes_per_quantum] == std::byte{0});
    SECTION("or from its beginning when the peer forgot its first part") {
      ends.b.to(IBV_QPS_RESET);
      std::fill(ends.b.memory.begin(), ends.b.memory.end(), std::byte{0});
      ends.b.to_init();
      ends.b.to_rtr(ends.a.qp->qp_num, 0xfffffe);
    }
    SECTION("") {}
  }
  await_writes(ends.a, 1);
  CHECK(ends.b.memory == ends.a.memory);
}

TEST_CASE("requests posted together have the quantum of requests posted one by one", "[qp]") {
  constexpr std::uint32_t count = 3;
  pair ends{deep(count, bytes_per_quantum)};
  const std::lock_guard lock{ends.a.inner().slot->send};
  for (std::uint32_t id = 0; id < count; ++id) enqueue_write(ends, id, bytes_per_quantum);
  SECTION("together") {
    execute(ends.a.inner(), count);
    CHECK(left_of(ends.a) == 0);
  }
  SECTION("one by one") {
    for (std::uint32_t left = count; left-- > 0;) {
      execute(ends.a.inner());
      CHECK(left_of(ends.a) == left);
    }
  }
}

TEST_CASE("a change of a queue pair waits for one quantum, not for the queue", "[qp]") {
  constexpr std::uint32_t count = 3 * requests_per_quantum;
  pair ends{deep(count)};
  std::unique_lock lock{ends.a.inner().slot->send};
  enqueue_writes(ends, count);
  std::thread changer = stopping(ends.a);
  execute(ends.a.inner());
  lock.unlock();
  changer.join();
  lock.lock();
  CHECK(ends.a.state() == IBV_QPS_SQD);
  CHECK(left_of(ends.a) == count - requests_per_quantum);
  lock.unlock();
  ends.a.to(IBV_QPS_RTS);
  await_writes(ends.a, count);
}

TEST_CASE("a send queue that is drained between two quanta of a message ends with that message",
          "[qp]") {
  pair ends{deep(2, 2 * bytes_per_quantum)};
  std::unique_lock lock{ends.a.inner().slot->send};
  enqueue_write(ends, 0, 2 * bytes_per_quantum);
  enqueue_write(ends, 1, 8);
  std::thread changer = stopping(ends.a);
  execute(ends.a.inner());
  lock.unlock();
  changer.join();
  await_writes(ends.a, 1);
  lock.lock();
  CHECK(left_of(ends.a) == 1);
  CHECK_FALSE(ends.a.inner().is_draining);
  lock.unlock();
  ends.a.to(IBV_QPS_RTS);
  CHECK(ends.a.await().wr_id == 1);
}
