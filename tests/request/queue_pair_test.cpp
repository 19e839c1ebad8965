#include "request/queue_pair.hpp"

#include "support/allocations.hpp"
#include "support/device.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/skip.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/wait_until.hpp>

#include <catch2/catch.hpp>

#include <poll.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::held;
using test::held_by;
using test::loopback;
using test::nothing;
using test::same_bytes;

namespace {

/// The sizes at which packets, inlining and limits change.
std::vector<std::size_t> sizes(const loopback& link) {
  const std::size_t mtu = verbs::bytes_of(link.port.mtu_active);
  const std::size_t most = link.port.message_max_bytes;
  return {0, 1, mtu - 1, mtu, mtu + 1, 1u << 20, std::min<std::size_t>(most, 64u << 20)};
}

}  // namespace

TEST_CASE("a message arrives as it was sent, whatever its size", "[request][device][D1]") {
  loopback link;
  const std::vector<std::size_t> all = sizes(link);
  const local_mr from = link.pattern(all.back());
  local_mr to = link.memory(all.back());
  for (const std::size_t size : all) {
    CAPTURE(size);
    std::ranges::fill(to.bytes(), std::byte{0xee});
    link.a->post_recv(to);
    CHECK(link.run(link.b->send(from.slice(0, size))) == size);
    const message got = link.run(link.a->next_message());
    CHECK(got.size_bytes == size);
    CHECK(got.payload().size_bytes() == size);
    CHECK_FALSE(got.immediate.has_value());
    CHECK_FALSE(got.is_write);
    CHECK(same_bytes(to.bytes().first(size), from.bytes().first(size)));
    if (size < to.size_bytes()) CHECK(to.bytes()[size] == std::byte{0xee});
  }
  CHECK(held_by(link) == nothing);
}

TEST_CASE("a write and a read move any size", "[request][device][D1][D5]") {
  loopback link;
  const std::vector<std::size_t> all = sizes(link);
  local_mr ours = link.pattern(all.back(), 2);
  local_mr theirs = link.memory(all.back());
  local_mr back = link.memory(all.back());
  for (const std::size_t size : all) {
    CAPTURE(size);
    std::ranges::fill(theirs.bytes(), std::byte{0});
    const remote_mr_slice remote = theirs.remote_slice();
    CHECK(link.run(link.a->write(ours.slice(0, size), remote)) == size);
    CHECK(same_bytes(theirs.bytes().first(size), ours.bytes().first(size)));
    if (size < theirs.size_bytes()) CHECK(theirs.bytes()[size] == std::byte{0});
    CHECK(link.run(link.a->read(back.slice(0, size), remote)) == size);
    CHECK(same_bytes(back.bytes().first(size), ours.bytes().first(size)));
  }
}

TEST_CASE("a message, a WRITE and a READ of the most bytes that the port carries arrive",
          "[request][device][D1]") {
  if (!support::counts_allocations()) CORDMA_SKIP("a sanitizer would take minutes over it");
  loopback link;
  const std::size_t most = link.port.message_max_bytes;  // soft0: 1 GiB.
  const local_mr from = link.pattern(most);
  local_mr to = link.memory(most);
  link.a->post_recv(to);
  CHECK(link.run(link.b->send(from)) == most);
  CHECK(link.run(link.a->next_message()).size_bytes == most);
  CHECK(same_bytes(to.bytes(), from.bytes()));
  std::memset(to.bytes().data(), 0, most);
  CHECK(link.run(link.a->write(from, to.remote_slice())) == most);
  CHECK(same_bytes(to.bytes(), from.bytes()));
  std::memset(to.bytes().data(), 0, most);
  CHECK(link.run(link.a->read(to, from.remote_slice())) == most);
  CHECK(same_bytes(to.bytes(), from.bytes()));
}

TEST_CASE("many sends match as many receives, in order", "[request][device][D2]") {
  static constexpr std::uint32_t count = 100;
  loopback link{{.capabilities = {.send_wr_max = 16, .recv_wr_max = 128}}};
  const local_mr from = link.pattern(count * 8);
  local_mr to = link.memory(count * 8);
  for (std::uint32_t i = 0; i < count; ++i) link.a->post_recv(to.slice(i * 8, 8));
  scope senders{link.executor};
  for (std::uint32_t i = 0; i < count; ++i) {
    senders.spawn(link.b->send_with_imm(from.slice(i * 8, 8), i));
  }
  for (std::uint32_t i = 0; i < count; ++i) {
    const message got = link.run(link.a->next_message());
    REQUIRE(got.immediate == i);
    REQUIRE(got.size_bytes == 8);
  }
  link.run(senders.join());
  CHECK(same_bytes(to.bytes(), from.bytes()));
}

namespace {

/// Takes `count` messages in its own buffers, of which 8 at a time are posted.
task<> take_in_order(queue_pair& qp, local_mr_slice to, std::uint32_t count) {
  std::uint32_t posted = 0;
  for (std::uint32_t i = 0; i < count; ++i) {
    for (; posted < std::min(count, i + 8); ++posted) qp.post_recv(to.slice(posted * 8, 8));
    const message got = co_await qp.next_message();
    REQUIRE(got.immediate == i);
    REQUIRE(got.slices[0].bytes().data() == to.bytes().data() + i * 8);
  }
}

}  // namespace

TEST_CASE("several queue pairs on one completion queue keep their messages in order, both ways",
          "[request][device][D2]") {
  static constexpr std::uint32_t count = 60;
  const verbs::queue_pair_capabilities small{.send_wr_max = 16, .recv_wr_max = 8};
  loopback link{{.capabilities = small, .min_rnr_timer = 28}};
  std::vector<std::unique_ptr<queue_pair>> all;
  all.push_back(std::move(link.a));
  all.push_back(std::move(link.b));
  for (int i = 0; i < 4; ++i) all.push_back(link.make_queue_pair(small));
  link.connect(*all[2], *all[3]);
  link.connect(*all[4], *all[5]);
  std::vector<local_mr> from;
  std::vector<local_mr> to;
  scope traffic{link.executor};
  for (std::size_t i = 0; i < all.size(); ++i) {
    from.push_back(link.pattern(count * 8, unsigned(i)));
    to.push_back(link.memory(count * 8));
    traffic.spawn(take_in_order(*all[i], to[i].slice(), count));
  }
  // More messages come at once than there are buffers, interleaved.
  for (std::uint32_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      traffic.spawn(all[i]->send_with_imm(from[i].slice(k * 8, 8), k));
    }
  }
  link.run(traffic.join());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bytes(to[i].bytes(), from[i ^ 1].bytes()));
    CHECK(held_by(*all[i]) == nothing);
  }
}

TEST_CASE("all 32 bits of immediate data arrive, and none when none were sent",
          "[request][device][D3]") {
  loopback link;
  const local_mr from = link.pattern(16);
  local_mr to = link.memory(16);
  for (const std::optional<std::uint32_t> immediate :
       {std::optional<std::uint32_t>{0xffffffffu}, {0u}, {0x01020304u}, {}}) {
    link.a->post_recv(to);
    if (immediate) {
      link.run(link.b->send_with_imm(from, *immediate));
    } else {
      link.run(link.b->send(from));
    }
    const message got = link.run(link.a->next_message());
    CHECK(got.immediate == immediate);
    CHECK(got.size_bytes == 16);
  }
}

TEST_CASE("a write with immediate wakes one receive, after its data", "[request][device][D4]") {
  loopback link;
  const local_mr from = link.pattern(4096);
  local_mr target = link.memory(4096);
  local_mr untouched = link.memory(64);
  link.a->post_recv(untouched);
  link.a->post_recv(untouched);
  link.run(link.b->write(from.slice(0, 8), target.remote_slice()));  // Wakes nobody.
  auto handle = link.b->post(write_with_imm(from, target.remote_slice(), 0xdeadbeef));
  // The receiver alone is waited for, and looks as soon as it is told.
  const message got = link.run(link.a->next_message());
  CHECK(same_bytes(target.bytes(), from.bytes()));
  CHECK(link.run(handle) == 4096);
  CHECK(got.is_write);
  CHECK(got.immediate == 0xdeadbeefu);
  CHECK(got.size_bytes == 4096);
  CHECK(got.payload().empty());
  CHECK(untouched.bytes()[0] == std::byte{0});
  CHECK(link.a->receives().pending_messages() == 0);
  CHECK(link.a->receives().posted() == 1);
}

TEST_CASE("the data of each write with immediate is there when its immediate comes",
          "[request][device][D4]") {
  static constexpr std::uint32_t count = 50;
  static constexpr std::size_t size = 64 * 1024;  // bytes of many packets
  loopback link;
  local_mr from = link.pattern(2 * size, 3);
  local_mr target = link.memory(size);
  for (std::uint32_t i = 0; i < count; ++i) {
    link.a->post_recv(local_mr_slice{});
    const local_mr_slice part = from.slice(i % 2 * size, size);
    auto handle = link.b->post(write_with_imm(part, target.remote_slice(), i));
    const message got = link.run(link.a->next_message());
    REQUIRE(same_bytes(target.bytes(), part.bytes()));
    REQUIRE(got.immediate == i);
    REQUIRE(link.run(handle) == size);
  }
}

TEST_CASE("a read needs local memory that may be written", "[request][device][D5]") {
  loopback link;
  local_mr read_only = link.memory(64, verbs::access::none);
  local_mr remote = link.memory(64);
  const auto outcome = link.outcome(link.a->read(read_only, remote.remote_slice()));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::access_denied);
  CHECK_THROWS_AS(link.a->post_recv(read_only), error);
  CHECK(held_by(*link.a) == nothing);
  CHECK(link.run(link.a->write(read_only, remote.remote_slice())) == 64);
}

TEST_CASE("slices are gathered and scattered in order", "[request][device][D8]") {
  loopback link;
  const local_mr from = link.pattern(300);
  local_mr to = link.memory(300);
  local_mr remote = link.memory(300);
  link.a->post_recv(
      scatter(to.slice(100, 50), to.slice(0, 100), to.slice(0, 0), to.slice(150, 150)));
  const auto parts = gather(from.slice(0, 100), from.slice(100, 0), from.slice(100, 200));
  CHECK(link.run(link.b->send(parts)) == 300);
  const message got = link.run(link.a->next_message());
  CHECK(got.slices.size() == 4);
  CHECK(got.size_bytes == 300);
  CHECK(same_bytes(to.bytes().subspan(100, 50), from.bytes().subspan(0, 50)));
  CHECK(same_bytes(to.bytes().subspan(0, 100), from.bytes().subspan(50, 100)));
  CHECK(same_bytes(to.bytes().subspan(150), from.bytes().subspan(150)));

  // The buffer as it is, for the next one.
  link.a->post_recv(got.slices);
  CHECK(link.run(link.b->send(from.slice(0, 60))) == 60);
  CHECK(link.run(link.a->next_message()).slices.size() == 4);
  CHECK(same_bytes(to.bytes().subspan(100, 50), from.bytes().subspan(0, 50)));
  CHECK(same_bytes(to.bytes().subspan(0, 10), from.bytes().subspan(50, 10)));

  CHECK(link.run(link.b->write(parts, remote.remote_slice())) == 300);
  CHECK(same_bytes(remote.bytes(), from.bytes()));
  std::ranges::fill(to.bytes(), std::byte{0});
  CHECK(link.run(link.b->read(scatter(to.slice(200, 100), to.slice(0, 200)),
                              remote.remote_slice())) == 300);
  CHECK(same_bytes(to.bytes().subspan(200), from.bytes().first(100)));
  CHECK(same_bytes(to.bytes().first(200), from.bytes().subspan(100)));
}

TEST_CASE("what has no slices, or empty ones, is a message without bytes",
          "[request][device][D8]") {
  loopback link;
  local_mr to = link.memory(8);
  const auto came = [&] { return link.run(link.a->next_message()).size_bytes; };
  for (int n = 0; n < 2; ++n) link.a->post_recv(to);
  CHECK(link.run(link.b->send(std::array<const_local_mr_slice, 0>{})) == 0);
  CHECK(came() == 0);
  CHECK(link.run(link.b->send(gather(to.slice(0, 0), const_local_mr_slice{}))) == 0);
  CHECK(came() == 0);
}

TEST_CASE("a message longer than the buffer is an error on both sides",
          "[request][device][D9][C6]") {
  loopback link;
  const local_mr from = link.pattern(2000);
  local_mr to = link.memory(1000);
  link.a->post_recv(to);
  const auto sent = link.outcome(link.b->send(from));
  REQUIRE(sent.has_failure());
  // The specification: an invalid request to the one, a length error to the other (IBTA 9.9.3,
  // table "responder error behavior"). rxe has statuses of its own.
  CHECK(sent.failure().code ==
        (test::is_rxe() ? wc_errc::remote_operation : wc_errc::remote_invalid_request));
  const auto got = link.outcome(with_timeout(link.a->next_message(), 10s));
  CHECK(got.has_failure());
  CHECK(link.a->failure_reason().code ==
        (test::is_rxe() ? wc_errc::local_qp_operation : wc_errc::local_length));
  CHECK(link.b->has_failed());
}

TEST_CASE("the same bytes arrive inline and not, at the boundary", "[request][device][D10]") {
  loopback link;
  const std::size_t most = link.b->verbs().capabilities().inline_max;
  REQUIRE(most > 1);
  local_mr to = link.memory(most + 1);
  local_mr unused = link.memory(8);
  const auto check = [&](auto request, local_mr_slice buffer) {
    for (const std::size_t size : {std::size_t{1}, most - 1, most, most + 1}) {
      CAPTURE(size);
      local_mr from = link.pattern(size, unsigned(size));
      std::ranges::fill(to.bytes(), std::byte{0});
      const std::vector<std::byte> expected{from.bytes().begin(), from.bytes().end()};
      memory_block& block = *from.slice().block();
      if (!buffer.empty()) link.a->post_recv(buffer);
      auto handle = link.b->post(request(from));
      CHECK(held_by(block) == held{.block_uses = 1});
      // Inline bytes were copied: the device must not look at the memory again.
      if (size <= most) std::ranges::fill(from.bytes(), std::byte{0});
      CHECK(link.run(handle) == size);
      if (!buffer.empty()) CHECK(link.run(link.a->next_message()).size_bytes == size);
      CHECK(same_bytes(to.bytes().first(size), expected));
    }
  };
  const remote_mr_slice remote = to.remote_slice();
  const auto halves = [](const local_mr& from) {
    const std::size_t half = from.size_bytes() / 2;
    return gather(from.slice(0, half), from.slice(half, from.size_bytes() - half));
  };
  SECTION("send") {
    check([](const local_mr& from) { return send(from); }, to);
  }
  SECTION("send of several slices") {
    check([&](const local_mr& from) { return send(halves(from)); }, to);
  }
  SECTION("write") {
    check([&](const local_mr& from) { return write(from, remote); }, {});
  }
  SECTION("write of several slices") {
    check([&](const local_mr& from) { return write(halves(from), remote); }, {});
  }
  SECTION("write with immediate") {
    check([&](const local_mr& from) { return write_with_imm(from, remote, 1); }, unused);
  }
}

TEST_CASE("a queue pair connected to itself works", "[request][device]") {
  loopback link{{.connected = false}};
  test::connect(link.ctx, link.port, link.a->verbs(), link.a->verbs().num());
  const local_mr from = link.pattern(100);
  local_mr to = link.memory(100);
  const auto [got, sent] = link.run(when_all(link.a->recv(to), link.a->send(from)));
  CHECK(sent == 100);
  CHECK(got.size_bytes == 100);
  CHECK(same_bytes(to.bytes(), from.bytes()));
}

TEST_CASE("a queue pair that does not fit on the completion queue is refused",
          "[request][device][N9]") {
  loopback link{{.cq = {.depth = 1024}, .capabilities = {.send_wr_max = 64, .recv_wr_max = 64}}};
  std::vector<std::unique_ptr<queue_pair>> all;
  try {
    for (;;) all.push_back(link.make_queue_pair({.send_wr_max = 64, .recv_wr_max = 64}));
  } catch (const error& e) {
    CHECK(e.code() == errc::limit_exceeded);
  }
  const unsigned room = link.driver.room();
  CHECK(room < 128);
  all.pop_back();
  CHECK(link.driver.room() >= room + 128);
}

TEST_CASE("who waits for a word of memory goes on when a WRITE has changed it",
          "[request][device]") {
  const auto there = [](loopback& link, std::uint64_t& word) -> task<> {
    const auto now = [&] { return std::atomic_ref{word}.load(std::memory_order_acquire); };
    for (std::uint64_t n = 1; n <= 100; ++n) {
      co_await wait_until(link.executor, [&] { return now() >= n; });
      REQUIRE(now() >= n);
    }
  };
  const auto here = [](loopback& link, local_mr& from, remote_mr_slice to) -> task<> {
    auto& word = *reinterpret_cast<std::uint64_t*>(from.bytes().data());
    for (word = 1; word <= 100; ++word) co_await link.a->write(from, to);
  };
  for (const auto mode : {completion_mode::busy, completion_mode::event}) {
    loopback link{{.cq = {.mode = mode}}};
    local_mr from = link.memory(sizeof(std::uint64_t));
    local_mr to = link.memory(sizeof(std::uint64_t));
    auto& word = *reinterpret_cast<std::uint64_t*>(to.bytes().data());
    link.run(when_all(here(link, from, to.remote_slice()), there(link, word)));
    CHECK(word == 100);
  }
}
