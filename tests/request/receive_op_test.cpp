#include <cordma/detail/request/receive_op.hpp>

#include "support/foreign_task.hpp"
#include "support/held.hpp"
#include "support/loopback.hpp"
#include "support/soak.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <random>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::held;
using test::held_by;
using test::loopback;
using test::nothing;

TEST_CASE("receives beyond the queue's depth wait for room in order", "[request][device]") {
  // Sends wait for receives.
  loopback link{{.capabilities = {.send_wr_max = 64, .recv_wr_max = 2}, .min_rnr_timer = 28}};
  const std::uint32_t count = 4 * link.a->receives().depth();
  local_mr mr = link.memory(std::size_t{count} * 8);
  std::vector<std::uint32_t> order;
  scope all{link.executor};
  const auto receiver = [](loopback& on, local_mr_slice to,
                           std::vector<std::uint32_t>& seen) -> task<> {
    const message got = co_await on.a->recv(to);
    seen.push_back(*got.immediate);
  };
  for (std::uint32_t i = 0; i < count; ++i) all.spawn(receiver(link, mr.slice(i * 8, 8), order));
  for (std::uint32_t i = 0; i < count; ++i) {
    all.spawn(link.b->send_with_imm(mr.slice(i * 8, 8), i));
  }
  link.run(all.join());
  REQUIRE(order.size() == count);
  for (std::uint32_t i = 0; i < count; ++i) CHECK(order[i] == i);
}

TEST_CASE("a receive that is stopped leaves its buffer, and the message goes to the next",
          "[request][device][C7]") {
  loopback link;
  local_mr mr = link.memory(128);
  const local_mr from = link.pattern(16);
  const auto timed_out = link.outcome(with_timeout(link.a->recv(mr.slice(0, 64)), 0ms));
  CHECK(timed_out.failure().code == errc::timed_out);
  CHECK(held_by(*link.a) == held{.slots = 1});
  SECTION("before it came") {
    link.run(link.b->send(from));
    const message got = link.run(link.a->next_message());
    CHECK(got.slices[0].bytes().data() == mr.bytes().data());
    CHECK(test::same_bytes(got.payload().bytes(), from.bytes()));
  }
  SECTION("to a recv, which then gets the first message and leaves its own buffer") {
    link.run(link.b->send(from));
    const message got = link.run(link.a->recv(mr.slice(64, 64)));
    CHECK(got.slices[0].bytes().data() == mr.bytes().data());
    CHECK(held_by(*link.a) == held{.slots = 1});
  }
}

TEST_CASE("a message granted to who is destroyed before taking it is not lost",
          "[request][device][C7][C1]") {
  loopback link;
  local_mr mr = link.memory(64);
  const local_mr from = link.pattern(16);
  struct nobody : waiter {
    nobody()
        : waiter{
              [](waiter&) noexcept -> std::coroutine_handle<> { return std::noop_coroutine(); }} {}
  } parent;
  {
    auto body = [](queue_pair& qp, local_mr_slice to) -> task<> { co_await qp.recv(to); };
    task<> abandoned = body(*link.a, mr);
    static_cast<void>(abandoned.start(parent, {&link.executor, {}}));
    static_cast<void>(link.b->post(send(from)));
    // Reaped, so that it is granted and scheduled, but not resumed.
    while (link.driver.reap() == 0 || link.a->receives().pending_messages() == 0) {
    }
    CHECK(link.a->receives().pending_messages() == 1);
  }
  CHECK(link.run(link.a->next_message()).size_bytes == 16);
}

TEST_CASE("of those who start together, one gets the message that is there", "[request][device]") {
  loopback link;
  local_mr buffers = link.memory(128);
  local_mr from = link.pattern(64);
  link.b->post_recv(buffers.slice(0, 64));
  link.run(link.a->send(from));
  link.run_until([&] { return link.b->receives().pending_messages() == 1; });
  link.b->post_recv(buffers.slice(64, 64));
  const auto send_later = [](loopback& l, local_mr_slice bytes) -> task<> {
    co_await l.executor.sleep_for(1ns);
    co_await l.a->send(bytes);
  };
  const auto [one, other, sent] = link.run(
      when_all(link.b->next_message(), link.b->next_message(), send_later(link, from.first(8))));
  CHECK(one.size_bytes == 64);
  CHECK(other.size_bytes == 8);
  CHECK(link.b->receives().pending_messages() == 0);
}

TEST_CASE("a receive that waits for room posts its buffer, though a message comes first",
          "[request][device][E6]") {
  loopback link{{.capabilities = {.send_wr_max = 4, .recv_wr_max = 2}}};
  local_mr buffers = link.memory(64 * 8);
  local_mr from = link.memory(8);
  const std::uint32_t depth = link.b->receives().depth();
  for (std::uint32_t i = 0; i < depth; ++i) link.b->post_recv(buffers.slice(64 * i, 64));
  const auto take_all = [&](loopback& l) -> task<> {
    co_await l.executor.sleep_for(1ns);
    for (std::uint32_t i = 0; i < 3; ++i) {
      static_cast<void>(l.a->post(send(from)));
      const message came = co_await l.b->recv(buffers.slice(64 * (depth + i), 64));
      CHECK(came.size_bytes == 8);
      CHECK(l.b->receives().posted() + 1 == depth);
    }
  };
  // Another task takes the first message, which makes room.
  const auto take_one = [](loopback& l) -> task<> {
    static_cast<void>(co_await l.b->next_message());
  };
  static_cast<void>(link.a->post(send(from)));
  link.run(when_all(take_all(link), take_one(link)));
}

TEST_CASE("a receive of no slices is posted, too, for who writes with immediate",
          "[request][device]") {
  loopback link;
  local_mr to = link.memory(64);
  const local_mr from = link.pattern(16);
  const auto taken = [](loopback& on) -> task<message> {
    co_return co_await on.a->recv(std::array<local_mr_slice, 0>{});
  };
  const auto written = [](loopback& on, const const_local_mr_slice& source,
                          const remote_mr_slice& target) -> task<> {
    co_await on.b->write_with_imm(source, target, 7);
  };
  auto [got, nothing] =
      link.run(when_all(taken(link), written(link, from, to.remote_slice().first(16))));
  CHECK(got.is_write);
  CHECK(got.immediate == 7);
  CHECK(got.slices.empty());
  CHECK(test::same_bytes(to.bytes().first(16), from.bytes()));
}

namespace {

constexpr std::size_t message_bytes = 64;
constexpr std::uint32_t ahead_max = 16;  // messages sent beyond those that were taken
constexpr std::uint32_t depth = 64;

std::byte byte_of(std::uint32_t number, std::size_t offset) {
  return std::byte(number * 2654435761u >> 13 ^ offset * 37);
}

/// A parent that is never told.
struct deaf : waiter {
  deaf()
      : waiter{[](waiter&) noexcept -> std::coroutine_handle<> { return std::noop_coroutine(); }} {}
};

/// Takes numbered messages, giving up again and again at random moments and in all ways. The n-th
/// buffer is posted n-th, so that message n must be found there.
struct fickle_receiver {
  fickle_receiver(std::uint32_t messages, std::uint64_t seed)
      : count{messages}, random{seed}, to{link.memory(count * message_bytes)} {}

  task<> send_all(std::uint64_t seed);
  task<> take_all();
  static task<> take_one(queue_pair& qp, std::optional<local_mr_slice> buffer,
                         result<message>& got);
  task<> take_with(unsigned kind, duration patience, std::optional<local_mr_slice> buffer,
                   result<message>& got);
  local_mr_slice nth(std::uint32_t n) { return to.slice(n * message_bytes, message_bytes); }

  std::uint32_t count;
  std::mt19937_64 random;
  loopback link{{.capabilities = {.send_wr_max = 16, .recv_wr_max = depth}}};
  local_mr to;
  std::uint32_t next = 0;
  std::uint32_t ahead = 0;               // Often 0: stops happen, however slow the machine is.
  std::array<std::uint32_t, 3> stops{};  // stops by a timeout, by a token, by destruction
};

task<> fickle_receiver::send_all(std::uint64_t seed) {
  std::mt19937_64 pauses{seed};
  local_mr from = link.memory(count * message_bytes);
  for (std::uint32_t i = 0; i < count; ++i) {
    while (i >= next + ahead) co_await sleep_for(50us);
    if (pauses() % 2 == 0) co_await sleep_for(std::chrono::microseconds{pauses() % 2000});
    const local_mr_slice part = from.slice(i * message_bytes, message_bytes);
    for (std::size_t k = 0; k < message_bytes; ++k) part.bytes()[k] = byte_of(i, k);
    static_cast<void>(link.b->post(send_with_imm(part, i)));
  }
  co_await link.b->sends_idle();
}

task<> fickle_receiver::take_one(queue_pair& qp, std::optional<local_mr_slice> buffer,
                                 result<message>& got) {
  if (buffer) {
    got = co_await as_result(qp.recv(*buffer));
  } else {
    got = co_await as_result(qp.next_message());
  }
}

task<> fickle_receiver::take_with(unsigned kind, duration patience,
                                  std::optional<local_mr_slice> buffer, result<message>& got) {
  if (kind == 0) {
    static_cast<void>(co_await as_result(with_timeout(take_one(*link.a, buffer, got), patience)));
  } else if (kind == 1) {
    scope inner{link.executor};
    inner.spawn(take_one(*link.a, buffer, got));
    co_await sleep_for(patience);
    inner.request_stop();
    co_await inner.join();
  } else {
    deaf parent;
    task<> destroyed = take_one(*link.a, buffer, got);
    static_cast<void>(destroyed.start(parent, {&link.executor, {}}));
    co_await sleep_for(patience);
  }
}

task<> fickle_receiver::take_all() {
  std::uint32_t posted = 0;
  while (next < count) {
    // More receives are posted than the sender sends messages: it always finds a buffer.
    for (; posted < std::min(count, next + 2 * ahead_max); ++posted) link.a->post_recv(nth(posted));
    std::optional<local_mr_slice> buffer;
    if (random() % 2 == 0 && posted < count) buffer = nth(posted);
    ahead = std::array{0u, 0u, 0u, 1u, 1u, ahead_max}[random() % 6];
    result<message> got{cancelled_result};
    const auto kind = unsigned(random() % stops.size());
    co_await take_with(kind, std::chrono::microseconds{random() % 400}, buffer, got);
    // Stopped or not, its buffer is posted, unless there was no room for it.
    const receive_queue& queue = link.a->receives();
    posted = next + queue.pending_messages() + queue.posted() + (got.has_value() ? 1 : 0);
    if (!got.has_value()) {
      REQUIRE(got.is_cancelled());
      ++stops[kind];
      continue;
    }
    REQUIRE(got->immediate == next);
    REQUIRE(got->size_bytes == message_bytes);
    const auto bytes = got->payload().bytes();
    REQUIRE(bytes.data() == nth(next).bytes().data());
    std::size_t right = 0;
    while (right < bytes.size() && bytes[right] == byte_of(next, right)) ++right;
    REQUIRE(right == message_bytes);
    ++next;
  }
}

void stop_at_random(std::uint32_t count, std::uint64_t seed) {
  fickle_receiver receiver{count, seed};
  scope all{receiver.link.executor};
  all.spawn(receiver.send_all(seed + 1));
  all.spawn(receiver.take_all());
  receiver.link.run(all.join());
  CHECK(receiver.next == count);
  CHECK(held_by(receiver.to) == nothing);
  for (const std::uint32_t stops : receiver.stops) CHECK(stops > count / 10);
}

}  // namespace

TEST_CASE("who receives of a queue pair that has failed is told at once", "[request][device]") {
  loopback link;
  link.a->abort({.code = errc::closed, .call = "test"});
  local_mr to = link.memory(64);
  const auto receive = [](loopback& l, local_mr& mr) -> support::foreign_task {
    co_await l.a->recv(mr);
  };
  const support::foreign_task foreign = receive(link, to);
  REQUIRE(foreign.done());
  CHECK_THROWS_AS(foreign.rethrow(), error);
  CHECK(link.outcome(link.a->next_message()).failure().code == errc::closed);
}

TEST_CASE("a receive of no slices waits for room, too", "[request][device]") {
  loopback link{{.capabilities = {.send_wr_max = 4, .recv_wr_max = 2}}};
  local_mr buffer = link.memory(64);
  const local_mr from = link.pattern(8);
  const std::uint32_t depth = link.a->receives().depth();
  for (std::uint32_t i = 0; i < depth; ++i) link.a->post_recv(buffer);
  const auto receive_nothing = [](loopback& l) -> task<message> {
    co_return co_await l.a->recv(std::array<local_mr_slice, 0>{});
  };
  const auto take_one = [&](loopback& l) -> task<> {
    co_await l.b->send(from);
    static_cast<void>(co_await l.a->next_message());  // There is room.
    co_await l.b->send(from);
  };
  link.run(when_all(receive_nothing(link), take_one(link)));
  CHECK(link.a->receives().posted() == depth - 1);
}

TEST_CASE("receives that are stopped at random lose no message and keep their order",
          "[request][device][C7]") {
  stop_at_random(1000, 1);
}

TEST_CASE("soak: receives that are stopped at random", "[request][device][.soak-stops]") {
  stop_at_random(std::uint32_t(test::soak::count(10'000)), test::soak::seed());
}
