#include <cordma/group/joining.hpp>

#include "ranks.hpp"
#include "support/outcome.hpp"
#include "support/variable.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <vector>

using namespace cordma;
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
