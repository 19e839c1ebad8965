#include "request/queue_pair.hpp"

#include "support/allocations.hpp"
#include "support/detached.hpp"
#include "support/device.hpp"
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
#include <memory>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::loopback;
using test::post_detached;
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
  CHECK(link.a->slots_in_use() == 0);
  CHECK(link.b->slots_in_use() == 0);
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
  std::ranges::fill(to.bytes(), std::byte{0});
  CHECK(link.run(link.a->write(from, to.remote_slice())) == most);
  CHECK(same_bytes(to.bytes(), from.bytes()));
  std::ranges::fill(to.bytes(), std::byte{0});
  CHECK(link.run(link.a->read(to, from.remote_slice())) == most);
  CHECK(same_bytes(to.bytes(), from.bytes()));
}

TEST_CASE("many sends match as many receives, in order", "[request][device][D2]") {
  static constexpr std::uint32_t count = 100;
  loopback link{{.capabilities = {.send_wr_max = 16, .recv_wr_max = 128}}};
  const local_mr from = link.pattern(count * 8);
  local_mr to = link.memory(count * 8);
  for (std::uint32_t i = 0; i < count; ++i) link.a->post_recv(to.slice(i * 8, 8));
  scope senders{link.home};
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
  scope traffic{link.home};
  for (std::size_t i = 0; i < all.size(); ++i) {
    from.push_back(link.pattern(count * 8, unsigned(i)));
    to.push_back(link.memory(count * 8));
    traffic.spawn(take_in_order(*all[i], to[i].slice(), count));
  }
  // More at once than there are buffers, interleaved.
  for (std::uint32_t k = 0; k < count; ++k) {
    for (std::size_t i = 0; i < all.size(); ++i) {
      traffic.spawn(all[i]->send_with_imm(from[i].slice(k * 8, 8), k));
    }
  }
  link.run(traffic.join());
  for (std::size_t i = 0; i < all.size(); ++i) {
    CAPTURE(i);
    CHECK(same_bytes(to[i].bytes(), from[i ^ 1].bytes()));
    CHECK(all[i]->slots_in_use() == 0);
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
  static constexpr std::size_t size = 64 * 1024;  // Many packets.
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
  CHECK(link.a->slots_in_use() == 0);
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
      CHECK(block.holders() == 2);
      // What went inline was copied: the device must not look at it again.
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

TEST_CASE("the request that failed reports its own status, the later ones that they were flushed",
          "[request][device][C6]") {
  loopback link;
  local_mr mr = link.memory(4096);
  const remote_mr_slice forbidden{mr.remote_slice().address(), 64,
                                  mr.remote_slice().rkey() ^ 0x5555};
  auto first = link.a->post(write(mr.slice(0, 256), mr.remote_slice()));
  auto bad = link.a->post(write(mr.slice(0, 64), forbidden));
  auto later = link.a->post(write(mr.slice(0, 256), mr.remote_slice()));
  auto last = link.a->post(read(mr.slice(0, 64), mr.remote_slice()));
  CHECK(link.outcome(first).has_value());
  CHECK(link.outcome(bad).failure().code == wc_errc::remote_access);
  CHECK(link.outcome(later).failure().code == wc_errc::flushed);
  CHECK(link.outcome(last).failure().code == wc_errc::flushed);
  CHECK(link.a->failure_reason().code == wc_errc::remote_access);
  CHECK(link.outcome(link.a->send(mr)).failure().code == errc::disconnected);
  CHECK(link.a->slots_in_use() == 0);
  link.run(link.a->drained_event().wait());
}

TEST_CASE("a queue pair that fails ends its receives, and drains", "[request][device][C6]") {
  loopback link;
  local_mr mr = link.memory(4096);
  for (int i = 0; i < 10; ++i) link.a->post_recv(mr.slice(0, 100));
  link.a->abort({.code = errc::disconnected, .call = "test"});
  CHECK(link.outcome(link.a->next_message()).failure().code == errc::disconnected);
  link.run(link.a->drained_event().wait());
  CHECK(link.a->slots_in_use() == 0);
  CHECK(mr.slice().block()->holders() == 1);
  CHECK_THROWS_AS(link.a->post_recv(mr), error);
}

TEST_CASE("an abort's reason ends what is in flight and what waits for room alike",
          "[request][device][C2]") {
  loopback link{{.capabilities = {.send_wr_max = 2, .recv_wr_max = 8}, .min_rnr_timer = 28}};
  const local_mr mr = link.memory(8);
  const std::uint32_t room = link.a->sends().depth();
  std::vector<std::error_code> ends;
  const auto send = [](loopback& on, const local_mr& m, auto& to) -> task<> {
    const auto outcome = co_await as_result(on.a->send(m));  // The peer has no receive for it.
    to.push_back(outcome.failure().code);
  };
  scope all{link.home};
  for (std::uint32_t n = 0; n < room + 2; ++n) all.spawn(send(link, mr, ends));
  link.run_until([&] { return link.a->slots_in_use() == room; });
  link.a->abort({.code = errc::closed, .call = "test"});
  link.run(all.join());
  CHECK(ends == std::vector<std::error_code>(room + 2, make_error_code(errc::closed)));
}

TEST_CASE("destroying a queue pair in any state ends without a hang", "[request][device][C3]") {
  loopback link;
  local_mr mr = link.memory(1 << 20);
  memory_block& block = *mr.slice().block();
  SECTION("never connected") {
    auto fresh = link.make_queue_pair({});
    fresh.reset();
  }
  SECTION("receives posted, before it is connected") {
    auto fresh = link.make_queue_pair({});
    fresh->verbs().to_init(link.port.number);
    fresh->post_recv(mr);
    CHECK(block.holders() == 2);
    fresh.reset();
  }
  SECTION("requests of all kinds in flight, with handles that outlive it") {
    for (int i = 0; i < 20; ++i) link.a->post_recv(mr.slice(0, 1024));
    auto wrote = link.a->post(write(mr, mr.remote_slice()));
    auto read_back = link.a->post(read(mr, mr.remote_slice()));
    auto sent = link.b->post(send(mr.slice(0, 512)));
    link.a.reset();
    CHECK(link.outcome(wrote).failure().code == errc::closed);
    CHECK(link.outcome(read_back).failure().code == errc::closed);
    link.b.reset();
    CHECK(sent.has_ended());
  }
  SECTION("completions nobody reaped") {
    for (int i = 0; i < 20; ++i) {
      static_cast<void>(link.a->post(write(mr.slice(0, 8), mr.remote_slice())));
    }
    link.a.reset();
    // The next one on the same place must not take the late entries for its own.
    link.a = link.make_queue_pair({});
    link.b = link.make_queue_pair({});
    link.connect(*link.a, *link.b);
    auto next = link.a->post(write(mr.slice(0, 8), mr.remote_slice()));
    CHECK(link.run(next) == 8);
  }
  link.a.reset();
  link.b.reset();
  CHECK(block.holders() == 1);
}

TEST_CASE("a completion queue with events that nobody read or acknowledged is destroyed",
          "[request][device][C3]") {
  const bool is_read = GENERATE(false, true);
  loopback link;
  local_mr mr = link.memory(64);
  verbs::completion_queue& cq = link.driver.verbs();
  ibv_comp_channel* const channel = cq.native_handle()->channel;
  REQUIRE(cq.arm() == 0);
  static_cast<void>(link.a->post(write(mr, mr.remote_slice())));
  pollfd ready{.fd = channel->fd, .events = POLLIN, .revents = 0};
  REQUIRE(::poll(&ready, 1, 5000) == 1);
  if (is_read) {
    ibv_cq* from = nullptr;
    void* context = nullptr;
    REQUIRE(ibv_get_cq_event(channel, &from, &context) == 0);
    REQUIRE(from == cq.native_handle());
    ++static_cast<verbs::detail::cq_events*>(context)->unacknowledged;
  }
  CHECK(cq.unacknowledged_events() == (is_read ? 1 : 0));
  link.a.reset();
  link.b.reset();
  CHECK(mr.slice().block()->holders() == 1);
}  // `ibv_destroy_cq` would wait for the event for ever.

TEST_CASE("who waits is told when the queue pair is destroyed", "[request][device][C3]") {
  loopback link{{.capabilities = {.send_wr_max = 2, .recv_wr_max = 2}, .min_rnr_timer = 31}};
  local_mr mr = link.memory(4096);
  std::vector<std::error_code> ends;
  scope waiting{link.home};
  const auto wait_for = [](auto op, std::vector<std::error_code>& to) -> task<> {
    const auto outcome = co_await as_result(std::move(op));
    to.push_back(outcome.has_failure() ? outcome.failure().code : std::error_code{});
  };
  for (int i = 0; i < 5; ++i) {
    waiting.spawn(wait_for(link.a->recv(mr.slice(0, 64)), ends));  // Three wait for room.
    waiting.spawn(wait_for(link.a->send(mr.slice(0, 64)), ends));  // Nobody receives them.
  }
  waiting.spawn(wait_for(link.a->next_message(), ends));
  link.run(link.home.sleep_for(1ms));
  link.a.reset();  // Before they go on.
  link.run(waiting.join());
  CHECK(ends.size() == 11);
  for (const std::error_code& end : ends) CHECK(end == errc::closed);
  CHECK(mr.slice().block()->holders() == 1);
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

namespace {

/// Receives into a row of buffers, and notes what it is told.
class noting_handler final : public message_handler {
 public:
  static constexpr std::uint32_t buffer_bytes = 64;
  explicit noting_handler(loopback& link, std::uint32_t buffers)
      : memory{link.memory(buffers * buffer_bytes)}, qp_{*link.a} {}

  void post(std::uint32_t number) {
    ibv_sge piece{
        .addr = reinterpret_cast<std::uint64_t>(memory.bytes().data() + number * buffer_bytes),
        .length = buffer_bytes,
        .lkey = memory.slice().lkey()};
    ibv_recv_wr wr{.wr_id = number, .next = nullptr, .sg_list = &piece, .num_sge = 1};
    qp_.post_recvs({&wr, 1});
  }

  local_mr memory;
  std::vector<std::uint32_t> received;  ///< the numbers of those that succeeded
  unsigned flushed = 0;
  unsigned rooms = 0;
  unsigned idles = 0;
  unsigned failures = 0;
  unsigned gone = 0;

 private:
  void on_receive(std::uint32_t number, const ibv_wc& wc) noexcept override {
    if (wc.status == IBV_WC_SUCCESS)
      received.push_back(number);
    else
      ++flushed;
  }
  bool on_room() noexcept override {
    ++rooms;
    return false;
  }
  void on_idle_awaited() noexcept override { ++idles; }
  void on_failure() noexcept override { ++failures; }
  void on_gone() noexcept override { ++gone; }

  queue_pair& qp_;
};

}  // namespace

TEST_CASE("a handler gets the receives that it posts, by its numbers", "[request][device]") {
  loopback link;
  noting_handler handler{link, 3};
  link.a->hand_messages_to(handler);
  for (const std::uint32_t n : {2u, 0u, 1u}) handler.post(n);
  CHECK(link.a->slots_in_use() == 3);
  const local_mr from = link.pattern(64);
  for (int n = 0; n < 2; ++n) link.run(link.b->send(from.slice()));
  link.run_until([&] { return handler.received.size() == 2; });
  CHECK(handler.received == std::vector<std::uint32_t>{2, 0});
  CHECK(same_bytes(handler.memory.bytes().first(64), from.bytes()));
  CHECK(link.a->slots_in_use() == 1);
  // Nobody else gets any.
  const auto taken = link.outcome(link.a->next_message());
  REQUIRE(taken.has_failure());
  CHECK(taken.failure().code == errc::refused);
  // Nor sends any: the peer's receives are counted.
  const auto sent = link.outcome(link.a->send(from.slice()));
  REQUIRE(sent.has_failure());
  CHECK(sent.failure().code == errc::refused);

  link.a->abort({.code = errc::closed, .call = "test"});
  CHECK(handler.failures == 1);
  link.run_until([&] { return handler.flushed == 1; });
  CHECK(link.a->slots_in_use() == 0);
  CHECK(handler.gone == 0);
  link.a.reset();
  CHECK(handler.gone == 1);
  CHECK(handler.failures == 1);
}

TEST_CASE("what is sent alone holds its memory until the device has sent it", "[request][device]") {
  loopback link;
  noting_handler handler{link, 1};
  link.a->hand_messages_to(handler);
  local_mr to = link.memory(64);
  local_mr from = link.pattern(64);
  // What is held of one block is counted together: each slot shows by one of its own.
  const std::array<local_mr, 2> others{link.memory(64), link.memory(64)};
  const std::array blocks{others[0].slice().block(), others[1].slice().block(),
                          from.slice().block()};
  const auto are_held_by = [&](std::uint32_t holders) {
    return std::ranges::all_of(
        blocks, [&](const memory_block* block) { return block->holders() == holders; });
  };
  for (int n = 0; n < 3; ++n) link.b->post_recv(to);
  constexpr request_flags unsignaled{.signaled = false};
  REQUIRE(post_detached(*link.a, send(others[0], unsignaled)));
  REQUIRE(post_detached(*link.a, send(others[1], unsignaled)));
  REQUIRE(post_detached(*link.a, send(from)));
  CHECK(are_held_by(2));
  CHECK(link.a->sends().awaits_completion());
  link.run_until([&] { return handler.rooms > 0; });
  CHECK(are_held_by(1));
  CHECK(link.a->sends().is_idle());
  CHECK_FALSE(link.a->sends().awaits_completion());
  CHECK(same_bytes(to.bytes(), from.bytes()));
  link.a.reset();  // Before its handler.
}

TEST_CASE("what is sent alone neither overtakes what waits for room nor fills the queue for ever",
          "[request][device]") {
  loopback link{{.capabilities = {.send_wr_max = 8, .recv_wr_max = 128}}};
  noting_handler handler{link, 1};
  link.a->hand_messages_to(handler);
  local_mr to = link.memory(8);
  const local_mr theirs = link.memory(8);
  for (int n = 0; n < 128; ++n) link.b->post_recv(to);
  std::array<std::byte, 8> bytes{};
  const auto request = send(test::unregistered(bytes), {.signaled = false});
  unsigned sent = 0;
  while (sent < 100) {
    if (post_detached(*link.a, request)) {
      ++sent;
      continue;
    }
    // Full: none asked for a completion entry, and there is one all the same.
    CHECK(link.a->sends().awaits_completion());
    const unsigned before = handler.rooms;
    auto waits = link.a->post(write(to.slice(), theirs.remote_slice()));
    CHECK_FALSE(post_detached(*link.a, request));
    link.run_until([&] { return handler.rooms > before && waits.has_ended(); });
  }
  link.run_until([&] { return link.b->receives().pending_messages() >= sent; });
  link.a.reset();
}

TEST_CASE("who waits for a word of memory goes on when a WRITE has changed it",
          "[request][device]") {
  const auto there = [](loopback& link, std::uint64_t& word) -> task<> {
    const auto now = [&] { return std::atomic_ref{word}.load(std::memory_order_acquire); };
    for (std::uint64_t n = 1; n <= 100; ++n) {
      co_await wait_until(link.home, [&] { return now() >= n; });
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
