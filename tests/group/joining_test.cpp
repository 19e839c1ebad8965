#include <cordma/group/joining.hpp>

#include "group/group_context.hpp"
#include "ranks.hpp"
#include "reserved_port.hpp"
#include "support/outcome.hpp"
#include "support/until.hpp"
#include "support/variable.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <span>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::on_test_device;
using test::ranks;
using test::variable;

namespace {

/// A buffer with the headers of a frame, in whole cache lines.
constexpr std::size_t buffer_stride = 8192 + 64;

/// Has two ranks with options of their own meet at a barrier. Returns what became of it on each.
std::array<result<void>, 2> meet(const group_options& first, const group_options& second) {
  runtime rt{on_test_device()};
  const std::vector<meeting> meetings = meeting::in_process(2);
  const auto rank = [&](unsigned r, const group_options& options) -> task<> {
    group g = co_await group::join(rt, meetings[r], options);
    co_await g.barrier();
    co_await g.leave();
  };
  const auto [a, b] = rt.run(when_all(as_result(rank(0, first)), as_result(rank(1, second))));
  return {a, b};
}

/// A connect may take longer than a join.
group_options patient(time_span join_timeout, bool connects_at_once = false) {
  return {.connections = {.connect_timeout = 1h},
          .connect_at_once = connects_at_once,
          .join_timeout = join_timeout};
}

/// Lets so much time pass until joins end, and no more.
task<> pass_time(runtime& rt, manual_clock& clock, duration length, const unsigned& ended,
                 unsigned wanted) {
  co_await test::due_timers_fired();  // The spawned tasks have begun.
  clock.advance(length - 1ms);
  co_await test::due_timers_fired();
  CHECK(ended == 0);
  clock.advance(1ms);
  co_await test::until(rt.executor(), [&] { return ended == wanted; });
}

std::vector<endpoint> addresses_of(std::span<const test::reserved_port> ports) {
  std::vector<endpoint> all;
  for (const test::reserved_port& one : ports) all.push_back(one.address());
  return all;
}

void check_refused(const group_options& first, const group_options& second, const char* named) {
  for (const result<void>& one : meet(first, second)) {
    REQUIRE(one.has_failure());
    CHECK(code_of(one) == errc::rank_failed);
    CHECK_THAT(one.failure().to_string(), Catch::Contains(named));
  }
}

}  // namespace

TEST_CASE("ranks whose options must be equal and are not refuse each other by name",
          "[group][device]") {
  check_refused({.algorithms = "all_reduce=ring"}, {}, "group_options::algorithms");
  check_refused({}, {.algorithms = "segment=1M"}, "CORDMA_COLLECTIVES");
  check_refused({}, {.reproducible = true}, "group_options::reproducible");
  check_refused({.buffer_bytes = 4096}, {}, "group_options::buffer_bytes");
}

TEST_CASE("ranks that write one table in two ways work together", "[group][device]") {
  const variable set{"CORDMA_COLLECTIVES", "all_reduce=ring segment=128K"};
  for (const auto& one : meet({.algorithms = "segment=131072"}, {})) CHECK(one.has_value());
}

TEST_CASE("a wrong CORDMA_COLLECTIVES ends the join", "[group][device]") {
  const variable set{"CORDMA_COLLECTIVES", "all_reduce=rung"};
  runtime rt{on_test_device()};
  const auto joined = rt.run(as_result(group::join(rt, meeting::single())));
  REQUIRE(joined.has_failure());
  CHECK(joined.failure().code == std::error_code{EINVAL, std::system_category()});
  CHECK_THAT(joined.failure().to_string(),
             Catch::Contains("CORDMA_COLLECTIVES") && Catch::Contains("rung is none of"));
}

TEST_CASE("a coroutine joins without options, and with braced ones", "[group][device]") {
  runtime rt{on_test_device()};
  const auto joins = [&]() -> task<std::size_t> {
    group first = co_await group::join(rt, meeting::single());
    group second = co_await group::join(rt, meeting::single(), {.receive_buffers = 24});
    co_return second.counters().receive_bytes;
  };
  CHECK(rt.run(joins()) == 24 * buffer_stride);
}

TEST_CASE("receive buffers are 16 for each rank, and 256 at least", "[group][device]") {
  for (const auto& [size, buffers] : {std::pair{2u, 256u}, std::pair{20u, 320u}}) {
    ranks all{size};
    CHECK(all[0].counters().receive_bytes == buffers * buffer_stride);
  }
  ranks all{2, {.receive_buffers = 24}};
  CHECK(all[0].counters().receive_bytes == 24 * buffer_stride);
}

TEST_CASE("ranks that connect at once are connected to all others when they have joined",
          "[group][device]") {
  for (const unsigned size : {2u, 3u, 8u}) {
    ranks all{size, {.connect_at_once = true}};
    for (unsigned r = 0; r < size; ++r) CHECK(all[r].counters().connections == size - 1);
  }
}

TEST_CASE("a rank that never comes ends the join of one that connects at once, by name",
          "[group][device]") {
  const unsigned absent = GENERATE(0u, 1u);
  const std::array<test::reserved_port, 2> ports;
  manual_clock clock;
  runtime rt{on_test_device(test::by_hand(clock))};
  unsigned ended = 0;
  result<group> joined{cancelled_result};
  const auto join = [&]() -> task<> {
    const meeting how = meeting::by_list(addresses_of(ports), 1 - absent);
    joined = co_await as_result(group::join(rt, how, patient(9s, true)));
    ++ended;
  };
  rt.run(with_scope([&](scope& joining) -> task<> {
    joining.spawn(join());
    co_await pass_time(rt, clock, 9s, ended, 1);
  }));
  REQUIRE(code_of(joined) == errc::timed_out);
  CHECK_THAT(joined.failure().to_string(), Catch::Contains("rank " + std::to_string(absent) +
                                                           " of 2 did not come within 9000 ms"));
}

TEST_CASE("ranks whose joins end because one never comes tell the others which",
          "[group][device]") {
  const std::array<test::reserved_port, 3> ports;
  manual_clock clock;
  runtime rt{on_test_device(test::by_hand(clock))};
  unsigned joined = 0, connected = 0, ended = 0;
  std::array<result<void>, 3> outcomes;
  const auto join = [&](unsigned rank, time_span limit) -> task<> {
    group g = co_await group::join(rt, meeting::by_list(addresses_of(ports), rank), patient(limit));
    ++joined;
    co_await test::until(rt.executor(), [&] { return joined == 2; });
    const unsigned other = 2 - rank;
    co_await when_all(g.send({}, other), g.receive({}, other));
    ++connected;
    outcomes[rank] = co_await as_result(detail::group_context::of(g)->whole().connect_in_time());
    g = {};
    ++ended;
  };
  rt.run(with_scope([&](scope& joining) -> task<> {
    joining.spawn(join(0, 60s));
    joining.spawn(join(2, 9s));
    co_await test::until(rt.executor(), [&] { return connected == 2; });
    co_await pass_time(rt, clock, 9s, ended, 2);
    co_await test::all_closed(rt.executor(), clock);
  }));
  CHECK(code_of(outcomes[2]) == errc::timed_out);
  REQUIRE(code_of(outcomes[0]) == errc::rank_failed);
  CHECK(outcomes[0].failure().object.number == 1);
  CHECK_THAT(outcomes[0].failure().to_string(),
             Catch::Contains("rank 1 is lost") && Catch::Contains("rank 1 of 3 did not come"));
}
