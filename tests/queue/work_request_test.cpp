#include <cordma/queue/work_request.hpp>

#include "support/detached.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"

#include <cordma/verbs/memory_region.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <string_view>
#include <utility>
#include <vector>

using namespace cordma;
using test::held;
using test::held_by;
using test::loopback;
using test::nothing;

namespace {

std::uint64_t& word(local_mr& mr, std::size_t offset = 0) {
  return *reinterpret_cast<std::uint64_t*>(mr.bytes().data() + offset);
}

}  // namespace

TEST_CASE("compare_swap gives the value before, and swaps only what equals",
          "[queue][device][D6]") {
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

TEST_CASE("fetch_add gives the value before, and wraps", "[queue][device][D6]") {
  loopback link;
  local_mr mr = link.memory(8);
  const remote_mr_slice remote = mr.remote_slice();
  word(mr) = std::uint64_t(-2);
  CHECK(link.run(link.a->fetch_add(remote, 1)) == std::uint64_t(-2));
  CHECK(link.run(link.a->fetch_add(remote, 1)) == std::uint64_t(-1));
  CHECK(word(mr) == 0);
  CHECK(link.run(link.a->fetch_add(remote, std::uint64_t(-1))) == 0);
  CHECK(word(mr) == std::uint64_t(-1));
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE("atomics in flight together each get their own value", "[queue][device][D6]") {
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
          "[queue][device][D7]") {
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
  CHECK(held_by(*link.a) == nothing);
  CHECK_FALSE(link.a->has_failed());
  CHECK(word(mr) == 0);
}

TEST_CASE("each request says what it is in one summary", "[queue]") {
  memory_block& block = memory_block::make(
      {nullptr, verbs::access::local_write,
       [](memory_block& done, void*) noexcept { memory_block::recycle(done); }, nullptr});
  std::array<std::byte, 64> bytes{};
  const local_mr_slice local{bytes.data(), bytes.size(), 7, block};
  const remote_mr_slice remote{0x1000, 64, 9}, word = remote.first(8);
  const auto a_send = send(local);
  CHECK(a_send.summary().opcode == IBV_WR_SEND);
  CHECK(a_send.summary().takes_receive());
  CHECK(a_send.value() == 64);
  ibv_ah path{};
  const detail::request_destination peer{.path = &path, .number = 3}, pool{.number = 3};
  wr_summary with_destination = a_send.summary();
  with_destination.to = &peer;
  CHECK_FALSE(with_destination.takes_receive());
  with_destination.to = &pool;
  CHECK(with_destination.takes_receive());
  const auto with_imm = send_with_imm(local, 0x01020304);
  CHECK(with_imm.summary().opcode == IBV_WR_SEND_WITH_IMM);
  CHECK(with_imm.summary().immediate == htobe32(0x01020304));
  const auto a_write = write(local, remote);
  CHECK(a_write.summary().opcode == IBV_WR_RDMA_WRITE);
  CHECK(a_write.summary().remote == &a_write.remote);
  CHECK_FALSE(a_write.summary().takes_receive());
  const auto write_imm = write_with_imm(local, remote, 1);
  CHECK(write_imm.summary().opcode == IBV_WR_RDMA_WRITE_WITH_IMM);
  CHECK(write_imm.summary().takes_receive());
  const auto a_read = read(local, remote, {.signaled = false});
  CHECK(a_read.summary().opcode == IBV_WR_RDMA_READ);
  CHECK(a_read.summary().is_read());
  CHECK_FALSE(a_read.summary().is_signaled());
  const auto swap = compare_swap(word, 3, 4);
  CHECK(swap.summary().opcode == IBV_WR_ATOMIC_CMP_AND_SWP);
  CHECK(swap.summary().compare_or_add == 3);
  CHECK(swap.summary().swap == 4);
  const auto add = fetch_add(word, 3);
  CHECK(add.summary().opcode == IBV_WR_ATOMIC_FETCH_AND_ADD);
  CHECK(add.summary().is_atomic());
  const auto two = send(gather(local, local.first(1)));
  CHECK(two.summary().local.size() == 2);
  CHECK(two.value() == 65);
  const auto key = invalidate(9);
  CHECK(key.summary().immediate == 9);
  CHECK(key.value() == 9);
  block.give_up();
}

namespace {

/// A registration of its own, on which windows are bound for `a`'s peer, `b`.
struct lent {
  explicit lent(loopback& link,
                verbs::access access = verbs::access::local_write | verbs::access::mw_bind,
                ibv_mw_type type = IBV_MW_TYPE_2)
      : region{link.pd, bytes.data(), bytes.size(), access},
        window{link.pd, type},
        owner{bytes.data(), bytes.size(), region.lkey(), 0,
              memory_block::make(
                  {link.pd.native_handle(), access,
                   [](memory_block& done, void*) noexcept { memory_block::recycle(done); },
                   nullptr})} {}
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
          "[queue][device]") {
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
          "[queue][device]") {
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 4}}};
  lent memory{link};
  local_mr mine = link.pattern(64);
  local_mr told = link.memory(64);
  const auto request = bind(memory.window, memory.region, memory.owner.slice(64, 64),
                            read_and_write, {.signaled = false});
  const auto message = send(mine, {.signaled = false});
  link.b->post_recv(told);
  REQUIRE(test::post_detached(*link.a, request, message));
  memory.window.bound(request.rkey);
  CHECK(held_by(*link.a, memory.owner, mine) == held{.slots = 2, .block_uses = 2});
  link.run(link.b->next_message());
  link.run(link.b->write(mine, memory.remote(64, 64, request.rkey)));
  CHECK(test::same_bytes({memory.bytes.data() + 64, 64}, mine.bytes()));
  // The bind and the message end with a request that was posted behind them.
  auto done = link.a->post(invalidate(request.rkey, {.signaled = true}));
  CHECK(link.run(done) == request.rkey);
  CHECK(link.driver.requests().of(request_kind::bind).completed == 1);
  CHECK(link.driver.requests().of(request_kind::send).completed == 1);
  CHECK(held_by(mine) == nothing);
  // Without room for both, neither is posted.
  std::vector<request_op<send_request<1>>> waiting;
  while (link.a->sends().in_flight() + 1 < link.a->sends().depth())
    waiting.push_back(link.a->post(send(mine)));
  CHECK(link.a->can_post_detached(1));
  CHECK_FALSE(link.a->can_post_detached(2));
  CHECK_FALSE(test::post_detached(*link.a, request, message));
  CHECK(link.a->sends().in_flight() + 1 == link.a->sends().depth());
}

TEST_CASE("of a chain that the device breaks off, what it took ends with the connection",
          "[queue][soft0]") {
  loopback link;
  lent memory{link};
  local_mr mine = link.pattern(64);
  const auto first =
      bind(memory.window, memory.region, memory.owner.slice(), read_and_write, {.signaled = false});
  std::array<const_local_mr_slice, 64> too_many;
  too_many.fill(mine.slice());
  CHECK_FALSE(test::post_detached(*link.a, first, send(too_many)));
  CHECK(link.a->has_failed());
  CHECK(held_by(mine) == nothing);
  CHECK(link.driver.requests().of(request_kind::bind).posted == 1);
  CHECK(link.driver.requests().of(request_kind::send).posted <= 1);  // The one that flushes.
  link.run(link.a->drained_event().wait());
  CHECK(held_by(*link.a) == nothing);
}

TEST_CASE("a window is bound again under another key", "[queue][device]") {
  loopback link;
  lent memory{link};
  local_mr mine = link.pattern(64);
  local_mr told = link.memory(64);
  std::vector<std::uint32_t> keys;
  for (int n = 0; n < 3; ++n) {
    link.b->post_recv(told);
    // The message comes after the bind: whoever has it may use the window.
    const auto done = link.run(link.a->post_all(
        bind(memory.window, memory.region, memory.owner.slice(), read_and_write), send(mine)));
    link.run(link.b->next_message());
    const std::uint32_t rkey = std::get<0>(done);
    memory.window.bound(rkey);
    CHECK(link.run(link.b->read(mine, memory.remote(0, 64, rkey))) == 64);
    link.run(link.a->await(invalidate(rkey)));
    keys.push_back(rkey);
  }
  CHECK(std::ranges::adjacent_find(keys) == keys.end());
}

TEST_CASE(
    "a type-1 window serves the peers of each queue pair, until it is bound again or to nothing",
    "[queue][device]") {
  loopback link;
  constexpr auto rights = verbs::access::local_write | verbs::access::mw_bind;
  lent memory{link, rights, IBV_MW_TYPE_1};
  const auto other = link.make_queue_pair(link.capabilities);
  const auto others_peer = link.make_queue_pair(link.capabilities);
  link.connect(*other, *others_peer);
  local_mr mine = link.pattern(64);
  const auto bound = [&](queue_pair& by, const const_local_mr_slice& part) {
    return link.run(by.await(bind(memory.window, memory.region, part, read_and_write)));
  };
  const std::uint32_t first = bound(*link.a, memory.owner.slice(64, 64));
  CHECK(first == memory.window.rkey());
  link.run(link.b->write(mine, memory.remote(64, 64, first)));
  CHECK(test::same_bytes({memory.bytes.data() + 64, 64}, mine.bytes()));
  CHECK(link.run(others_peer->read(mine, memory.remote(64, 64, first))) == 64);
  // Another queue pair binds the window to other memory; the key of before is dead.
  const std::uint32_t second = bound(*other, memory.owner.slice(128, 64));
  CHECK(second != first);
  link.run(link.b->write(mine, memory.remote(128, 64, second)));
  CHECK(link.outcome(link.b->write(mine, memory.remote(64, 64, first))).failure().code ==
        wc_errc::remote_access);
  const std::uint32_t third = bound(*other, {});
  CHECK(link.outcome(others_peer->read(mine, memory.remote(128, 64, second))).failure().code ==
        wc_errc::remote_access);
  CHECK(third != second);
  CHECK(held_by(memory.owner) == nothing);
}

TEST_CASE("a type-1 window that is bound among other requests keeps its place", "[queue][device]") {
  loopback link;
  constexpr auto rights = verbs::access::local_write | verbs::access::mw_bind;
  lent memory{link, rights, IBV_MW_TYPE_1};
  local_mr mine = link.pattern(64);
  local_mr told = link.memory(64);
  for (int n = 0; n < 2; ++n) link.b->post_recv(told);
  const auto request = bind(memory.window, memory.region, memory.owner, read_and_write);
  const auto [before, key, after] = link.run(link.a->post_all(send(mine), request, send(mine)));
  CHECK(before == 64);
  CHECK(after == 64);
  CHECK(key == memory.window.rkey());
  CHECK(link.run(link.b->read(mine, memory.remote(0, 64, key))) == 64);
  const request_counters counted = link.driver.requests().of(request_kind::bind);
  CHECK(counted.completed == 1);
}

TEST_CASE("a type-1 bind that the device refuses names its call", "[queue][device]") {
  loopback link;
  constexpr auto rights = verbs::access::local_write | verbs::access::mw_bind;
  lent memory{link, rights, IBV_MW_TYPE_1};
  auto& bind_mw = link.ctx.native_handle()->ops.bind_mw;
  auto* const real = std::exchange(bind_mw, [](ibv_qp*, ibv_mw*, ibv_mw_bind*) { return ENOMEM; });
  const auto outcome =
      link.outcome(link.a->await(bind(memory.window, memory.region, memory.owner, read_and_write)));
  bind_mw = real;
  CHECK(outcome.failure().code == std::error_code{ENOMEM, std::system_category()});
  CHECK(std::string_view{outcome.failure().call} == "ibv_bind_mw");
  CHECK(link.a->sends().posted_total() == 0);
  CHECK(held_by(memory.owner) == nothing);
}

TEST_CASE("a type-1 bind that the device would refuse fails before it is posted",
          "[queue][device]") {
  loopback link;
  constexpr auto rights = verbs::access::local_write | verbs::access::mw_bind;
  lent memory{link, rights, IBV_MW_TYPE_1};
  lent plain{link, verbs::access::local_write, IBV_MW_TYPE_1};
  const auto refused = [&](lent& on, const_local_mr_slice part, verbs::access access) {
    return link.outcome(link.a->await(bind(on.window, on.region, part, access))).failure().code;
  };
  CHECK(refused(plain, plain.owner, verbs::access::remote_read) == errc::access_denied);
  CHECK(refused(plain, {}, verbs::access::none) == errc::access_denied);
  CHECK(refused(memory, plain.owner, read_and_write) == errc::out_of_range);
  CHECK(refused(memory, memory.owner, verbs::access::zero_based) == errc::access_denied);
  CHECK(link.a->sends().posted_total() == 0);
  CHECK_FALSE(link.a->has_failed());
}

TEST_CASE("a bind that the device would refuse fails before it is posted", "[queue][device]") {
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
  // A second registration of the bytes allows no windows: a bind needs one that does.
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

TEST_CASE("a request that nobody awaits, of memory that is gone, names that in what it breaks",
          "[queue][device]") {
  loopback link;
  local_mr mine = link.pattern(64);
  local_mr freed = link.pattern(64);
  const auto late = send(freed);
  freed.reset();
  CHECK_FALSE(test::post_detached(*link.a, send(mine), late));
  CHECK(link.a->failure_reason().code == errc::stale_slice);
  CHECK(link.a->failure_reason().call == std::string_view{"post_send"});
  CHECK(link.a->sends().posted_total() == 0);
  CHECK(held_by(*link.a, mine) == nothing);
}
