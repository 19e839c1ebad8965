#include <cordma/transfer/work_request.hpp>

#include "support/loopback.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <cstring>
#include <new>

using namespace cordma;
using test::loopback;

namespace {

std::uint64_t& word(local_mr& mr, std::size_t offset = 0) {
  return *reinterpret_cast<std::uint64_t*>(mr.bytes().data() + offset);
}

}  // namespace

TEST_CASE("compare_swap gives the value before, and swaps only what equals",
          "[transfer][device][D6]") {
  loopback link;
  local_mr mr = link.memory(16);
  const remote_mr_slice remote = mr.remote_slice().slice(8, 8);
  word(mr, 8) = 5;
  CHECK(link.run(link.a->compare_swap(remote, 4, 9)) == 5);
  CHECK(word(mr, 8) == 5);
  CHECK(link.run(link.a->compare_swap(remote, 5, 0xfedcba9876543210)) == 5);
  CHECK(word(mr, 8) == 0xfedcba9876543210);
  CHECK(link.run(link.b->compare_swap(remote, 0xfedcba9876543210, 0)) == 0xfedcba9876543210);
  CHECK(word(mr, 8) == 0);
  CHECK(word(mr) == 0);
}

TEST_CASE("fetch_add gives the value before, and wraps", "[transfer][device][D6]") {
  loopback link;
  local_mr mr = link.memory(8);
  const remote_mr_slice remote = mr.remote_slice();
  word(mr) = std::uint64_t(-2);
  CHECK(link.run(link.a->fetch_add(remote, 1)) == std::uint64_t(-2));
  CHECK(link.run(link.a->fetch_add(remote, 1)) == std::uint64_t(-1));
  CHECK(word(mr) == 0);
  CHECK(link.run(link.a->fetch_add(remote, std::uint64_t(-1))) == 0);
  CHECK(word(mr) == std::uint64_t(-1));
  CHECK(link.a->slots_in_use() == 0);
}

TEST_CASE("atomics in flight together each get their own value", "[transfer][device][D6]") {
  loopback link;
  local_mr mr = link.memory(8);
  const remote_mr_slice remote = mr.remote_slice();
  auto all = link.a->post_all(fetch_add(remote, 1), fetch_add(remote, 10), fetch_add(remote, 100),
                              compare_swap(remote, 111, 7));
  auto next = link.a->post(fetch_add(remote, 0));
  const auto values = link.run(all);
  CHECK(values == std::tuple{0u, 1u, 11u, 111u});
  CHECK(link.run(next) == 7);
}

TEST_CASE("a misaligned atomic, or one of other than 8 bytes, fails before it is posted",
          "[transfer][device][D7]") {
  loopback link;
  local_mr mr = link.memory(32);
  const remote_mr_slice remote = mr.remote_slice();
  const std::uint32_t posted_before = link.a->sends().posted_total();
  for (const std::size_t offset : {1u, 2u, 4u, 7u}) {
    const auto outcome = link.outcome(link.a->fetch_add(remote.slice(offset, 8), 1));
    REQUIRE(outcome.has_failure());
    CHECK(outcome.failure().code == errc::misaligned);
  }
  for (const std::size_t length : {0u, 1u, 4u, 7u, 9u, 16u}) {
    const auto outcome = link.outcome(link.a->compare_swap(remote.slice(0, length), 0, 1));
    REQUIRE(outcome.has_failure());
    CHECK(outcome.failure().code == errc::wrong_length);
  }
  CHECK(link.a->sends().posted_total() == posted_before);
  CHECK(link.a->slots_in_use() == 0);
  CHECK_FALSE(link.a->has_failed());
  CHECK(word(mr) == 0);
}

TEST_CASE("requests become the work requests of ibv_post_send", "[transfer]") {
  memory_block& block = memory_block::make(
      nullptr, verbs::access::local_write,
      [](memory_block& done, void*) noexcept { memory_block::recycle(done); }, nullptr);
  std::array<std::byte, 64> bytes{};
  const local_mr_slice local{bytes.data(), bytes.size(), 7, block};
  const remote_mr_slice remote{0x1000, 64, 9};
  const auto filled = [](const auto& request) {
    ibv_send_wr wr{};
    request.fill(wr);
    return wr;
  };
  CHECK(filled(send(local)).opcode == IBV_WR_SEND);
  CHECK(filled(send_with_imm(local, 0x01020304)).opcode == IBV_WR_SEND_WITH_IMM);
  CHECK(filled(send_with_imm(local, 0x01020304)).imm_data == htobe32(0x01020304));
  CHECK(filled(write(local, remote)).opcode == IBV_WR_RDMA_WRITE);
  CHECK(filled(write(local, remote)).wr.rdma.remote_addr == 0x1000);
  CHECK(filled(write_with_imm(local, remote, 1)).opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
  CHECK(filled(read(local, remote)).opcode == IBV_WR_RDMA_READ);
  CHECK(filled(read(local, remote)).wr.rdma.rkey == 9);
  const ibv_send_wr swap = filled(compare_swap(remote.first(8), 3, 4));
  CHECK(swap.opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
  CHECK(swap.wr.atomic.compare_add == 3);
  CHECK(swap.wr.atomic.swap == 4);
  CHECK(filled(fetch_add(remote.first(8), 3)).opcode == IBV_WR_ATOMIC_FETCH_AND_ADD);
  CHECK(read(local, remote).shape().local_access == verbs::access::local_write);
  CHECK_FALSE(read(local, remote).shape().can_be_inline);
  CHECK(send(gather(local, local.first(1))).shape().local.size() == 2);
  block.give_up();
}

namespace {

/// A registration of its own, on which windows are bound for `a`'s peer, `b`.
struct lent {
  explicit lent(loopback& link,
                verbs::access access = verbs::access::local_write | verbs::access::mw_bind)
      : region{link.pd, bytes.data(), bytes.size(), access},
        window{link.pd},
        owner{bytes.data(), bytes.size(), region.lkey(), 0,
              memory_block::make(
                  link.pd.native_handle(), access,
                  [](memory_block& done, void*) noexcept { memory_block::recycle(done); },
                  nullptr)} {}
  [[nodiscard]] remote_mr_slice remote(std::size_t offset, std::size_t length,
                                       std::uint32_t rkey) const {
    return {reinterpret_cast<std::uint64_t>(bytes.data()) + offset, length, rkey};
  }

  alignas(8) std::array<std::byte, 256> bytes{};
  verbs::memory_region region;
  verbs::memory_window window;
  local_mr owner;
};

constexpr auto read_and_write = verbs::access::remote_read | verbs::access::remote_write;

}  // namespace

TEST_CASE("a bound window lets the peer reach just that memory, until it is invalidated",
          "[transfer][device]") {
  loopback link;
  lent memory{link};
  local_mr mine = link.pattern(64);
  const std::uint32_t rkey = link.run(link.a->await(
      bind(memory.window, memory.region, memory.owner.slice(64, 64), read_and_write)));
  CHECK(rkey == memory.window.next_rkey());
  link.run(link.b->write(mine, memory.remote(64, 64, rkey)));
  CHECK(test::same_bytes({memory.bytes.data() + 64, 64}, mine.bytes()));
  CHECK(link.run(link.a->await(invalidate(rkey))) == rkey);
  CHECK(link.outcome(link.b->write(mine, memory.remote(64, 64, rkey))).failure().code ==
        wc_errc::remote_access);
  CHECK(link.driver.requests().of(request_kind::bind).completed == 1);
  CHECK(link.driver.requests().of(request_kind::invalidate).completed == 1);
}

TEST_CASE("what is sent behind a bind that nobody awaits finds the window bound",
          "[transfer][device]") {
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 4}}};
  lent memory{link};
  local_mr mine = link.pattern(64);
  local_mr told = link.memory(64);
  const auto request =
      bind(memory.window, memory.region, memory.owner.slice(64, 64), read_and_write);
  ibv_send_wr first{};
  request.fill(first);
  ibv_send_wr message{};
  message.opcode = IBV_WR_SEND;
  ibv_sge bytes{reinterpret_cast<std::uint64_t>(mine.bytes().data()), 64, mine.slice().lkey()};
  message.sg_list = &bytes;
  message.num_sge = 1;
  first.next = &message;
  link.b->post_recv(told);
  REQUIRE(link.a->send_alone(first, mine.slice().block()));
  memory.window.bound(request.rkey);
  CHECK(memory.owner.slice().block()->holders() == 1);
  CHECK(mine.slice().block()->holders() == 2);
  CHECK(link.a->sends().in_flight() == 2);
  CHECK_FALSE(link.a->sends().awaits_completion());
  link.run(link.b->next_message());
  link.run(link.b->write(mine, memory.remote(64, 64, request.rkey)));
  CHECK(test::same_bytes({memory.bytes.data() + 64, 64}, mine.bytes()));
  // They end with what was sent behind them.
  auto done = link.a->post(invalidate(request.rkey, {.signaled = true}));
  CHECK(link.run(done) == request.rkey);
  CHECK(link.driver.requests().of(request_kind::bind).completed == 1);
  CHECK(link.driver.requests().of(request_kind::send).completed == 1);
  CHECK(mine.slice().block()->holders() == 1);
  // Without room for both, neither is posted.
  std::vector<request_op<send_request<1>>> waiting;
  while (link.a->sends().in_flight() + 1 < link.a->sends().depth())
    waiting.push_back(link.a->post(send(mine)));
  CHECK(link.a->can_send_alone(1));
  CHECK_FALSE(link.a->can_send_alone(2));
  CHECK_FALSE(link.a->send_alone(first, mine.slice().block()));
  CHECK(link.a->sends().in_flight() + 1 == link.a->sends().depth());
}

TEST_CASE("of a chain that the device breaks off, what it took ends with the connection",
          "[transfer][soft0]") {
  loopback link;
  lent memory{link};
  local_mr mine = link.pattern(64);
  ibv_send_wr first{};
  bind(memory.window, memory.region, memory.owner.slice(), read_and_write).fill(first);
  ibv_send_wr message{};
  message.opcode = IBV_WR_SEND;
  ibv_sge unknown{reinterpret_cast<std::uint64_t>(mine.bytes().data()), 64, mine.slice().lkey()};
  std::array<ibv_sge, 64> too_many;
  too_many.fill(unknown);
  message.sg_list = too_many.data();
  message.num_sge = int(too_many.size());
  first.next = &message;
  CHECK_FALSE(link.a->send_alone(first, mine.slice().block()));
  CHECK(link.a->has_failed());
  CHECK(mine.slice().block()->holders() == 1);
  CHECK(link.driver.requests().of(request_kind::bind).posted == 1);
  CHECK(link.driver.requests().of(request_kind::send).posted <= 1);  // The one that flushes.
  link.run(link.a->drained_event().wait());
  CHECK(link.a->slots_in_use() == 0);
}

TEST_CASE("a window is bound again under another key", "[transfer][device]") {
  loopback link;
  lent memory{link};
  local_mr mine = link.pattern(64);
  local_mr told = link.memory(64);
  for (int n = 0; n < 3; ++n) {
    link.b->post_recv(told);
    // The message comes after the bind: whoever has it may use the window.
    const auto done = link.run(link.a->post_all(
        bind(memory.window, memory.region, memory.owner.slice(), read_and_write), send(mine)));
    link.run(link.b->next_message());
    const std::uint32_t rkey = std::get<0>(done);
    memory.window.bound(rkey);
    link.run(link.b->read(mine, memory.remote(0, 64, rkey)));
    link.run(link.a->await(invalidate(rkey)));
  }
}

TEST_CASE("a bind that the device would refuse fails before it is posted", "[transfer][device]") {
  loopback link;
  lent memory{link};
  lent plain{link, verbs::access::local_write};
  lent read_only{link, verbs::access::mw_bind};
  const std::uint32_t posted_before = link.a->sends().posted_total();
  const auto refused = [&](lent& on, const_local_mr_slice part, verbs::access access) {
    return link.outcome(link.a->await(bind(on.window, on.region, part, access))).failure().code;
  };
  CHECK(refused(plain, plain.owner, read_and_write) == errc::access_denied);
  CHECK(refused(read_only, read_only.owner, read_and_write) == errc::access_denied);
  CHECK(refused(memory, plain.owner, read_and_write) == errc::out_of_range);
  CHECK(refused(memory, {}, read_and_write) == errc::out_of_range);
  CHECK(refused(memory, memory.owner, verbs::access::on_demand) == errc::access_denied);
  // The same bytes, registered once more: it is the registration that must allow it.
  const verbs::memory_region again{link.pd, memory.bytes.data(), 256, verbs::access::local_write};
  CHECK(link.outcome(link.a->await(bind(memory.window, again, memory.owner, read_and_write)))
            .failure()
            .code == errc::access_denied);
  verbs::protection_domain other_pd{link.ctx};
  const verbs::memory_window other{other_pd};
  CHECK(link.outcome(link.a->await(bind(other, memory.region, memory.owner, read_and_write)))
            .failure()
            .code == errc::wrong_protection_domain);
  const const_local_mr_slice stale = memory.owner.slice();
  memory.owner.reset();
  CHECK(refused(memory, stale, read_and_write) == errc::stale_slice);
  CHECK(link.a->sends().posted_total() == posted_before);
  CHECK_FALSE(link.a->has_failed());
}

TEST_CASE("a work request, or its rest, is cleared wherever it lies", "[transfer]") {
  alignas(16) std::array<std::byte, 2 * sizeof(ibv_send_wr)> bytes;
  for (const bool is_all : {true, false}) {
    for (std::size_t offset = 0; offset <= 16; offset += alignof(ibv_send_wr)) {
      bytes.fill(std::byte{0xff});
      auto& wr = *new (&bytes[offset]) ibv_send_wr;
      is_all ? clear(wr) : clear_rest(wr);
      const std::size_t from = offset + (is_all ? 0 : offsetof(ibv_send_wr, send_flags));
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        const bool is_cleared = i >= from && i < offset + sizeof(ibv_send_wr);
        CHECK(bytes[i] == (is_cleared ? std::byte{} : std::byte{0xff}));
      }
    }
  }
}
