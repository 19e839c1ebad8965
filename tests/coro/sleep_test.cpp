#include <cordma/coro/sleep.hpp>

#include "support/allocations.hpp"
#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"
#include "support/skip.hpp"

#include <cordma/coro/task.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;
using support::manual_executor;

static_assert(operation<detail::sleep_op>);
static_assert(std::is_nothrow_move_constructible_v<detail::sleep_op>);

TEST_CASE("a sleep ends at its time, not before", "[coro]") {
  manual_executor executor;
  support::started sleeping{executor.scheduler, sleep_for(2ms)};
  executor.advance(2ms - 1ns);
  CHECK_FALSE(sleeping.has_ended());
  executor.advance(1ns);
  CHECK(sleeping.has_ended());
  executor.run(sleep_until(time_point{5ms}));
  CHECK(executor.clock.now() == time_point{5ms});
  executor.run(sleep_until(time_point{1ms}));
  CHECK(executor.clock.now() == time_point{5ms});
}

TEST_CASE("a sleep is stopped or abandoned, and its timer goes", "[coro]") {
  manual_executor executor;
  support::started stopped{executor.scheduler, sleep_for(duration::max())};
  {
    const support::started abandoned{executor.scheduler, sleep_for(1ms)};
  }
  stopped.request_stop();
  CHECK(executor.scheduler.next_deadline() == time_point::max());
  executor.settle();
  REQUIRE(stopped.has_ended());
  CHECK((*stopped).take_result().is_cancelled());
}

TEST_CASE("a sleep that is over is not taken back by a stop", "[coro]") {
  manual_executor executor;
  support::started sleeping{executor.scheduler, sleep_for(1ms)};
  executor.clock.advance(1ms);
  executor.scheduler.fire_due();
  sleeping.request_stop();
  executor.settle();
  CHECK((*sleeping).take_result().has_value());
}

TEST_CASE("a foreign coroutine sleeps on a scheduler that it names", "[coro]") {
  manual_executor executor;
  const auto foreign = [&]() -> support::foreign_task {
    const result<void> nameless = co_await as_result(sleep_for(1ms));
    CHECK(nameless.failure().code == errc::no_scheduler);
    co_await detail::sleep_op{duration{1ms}, &executor.scheduler};
  };
  const support::foreign_task f = foreign();
  CHECK_FALSE(f.done());
  executor.advance(1ms);
  CHECK(f.done());
  f.rethrow();
}

TEST_CASE("sleeping makes no malloc once warm", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  manual_executor executor;
  const auto loop = [](int count) -> task<> {
    for (int n = 0; n < count; ++n) co_await sleep_for(1ms);
  };
  executor.run(loop(10));
  const auto before = support::allocation_count();
  executor.run(loop(10'000));
  CHECK(support::allocation_count() == before);
}
