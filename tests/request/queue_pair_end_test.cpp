// How a queue pair ends: by a request that fails, by an abort, and by its destruction.
#include "request/queue_pair.hpp"

#include "support/held.hpp"
#include "support/loopback.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <poll.h>

#include <array>
#include <cstdint>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::held;
using test::held_by;
using test::loopback;
using test::nothing;

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
  CHECK(held_by(*link.a) == nothing);
  link.run(link.a->drained_event().wait());
}

TEST_CASE("a queue pair that fails ends its receives, and drains", "[request][device][C6]") {
  loopback link;
  local_mr mr = link.memory(4096);
  for (int i = 0; i < 10; ++i) link.a->post_recv(mr.slice(0, 100));
  link.a->abort({.code = errc::disconnected, .call = "test"});
  CHECK(link.outcome(link.a->next_message()).failure().code == errc::disconnected);
  link.run(link.a->drained_event().wait());
  CHECK(held_by(*link.a, mr) == nothing);
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
  scope all{link.executor};
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
    CHECK(held_by(block) == held{.block_uses = 1});
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
  CHECK(held_by(block) == nothing);
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
    ++*static_cast<unsigned*>(context);
  }
  CHECK(cq.unacknowledged_events() == (is_read ? 1 : 0));
  link.a.reset();
  link.b.reset();
  CHECK(held_by(mr) == nothing);
}  // `ibv_destroy_cq` would wait for the event for ever.

TEST_CASE("who waits is told when the queue pair is destroyed", "[request][device][C3]") {
  loopback link{{.capabilities = {.send_wr_max = 2, .recv_wr_max = 2}, .min_rnr_timer = 31}};
  local_mr mr = link.memory(4096);
  std::vector<std::error_code> ends;
  scope waiting{link.executor};
  const auto wait_for = [](auto op, std::vector<std::error_code>& to) -> task<> {
    const auto outcome = co_await as_result(std::move(op));
    to.push_back(outcome.has_failure() ? outcome.failure().code : std::error_code{});
  };
  for (int i = 0; i < 5; ++i) {
    waiting.spawn(wait_for(link.a->recv(mr.slice(0, 64)), ends));  // Three wait for room.
    waiting.spawn(wait_for(link.a->send(mr.slice(0, 64)), ends));  // The peer has no receive.
  }
  waiting.spawn(wait_for(link.a->next_message(), ends));
  link.run(link.executor.sleep_for(1ms));
  link.a.reset();  // The queue pair goes before the tasks go on.
  link.run(waiting.join());
  CHECK(ends.size() == 11);
  for (const std::error_code& end : ends) CHECK(end == errc::closed);
  CHECK(held_by(mr) == nothing);
}
