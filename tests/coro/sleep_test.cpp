#include <cordma/coro/sleep.hpp>

#include "support/allocations.hpp"
#include "support/foreign_task.hpp"
#include "support/manual_home.hpp"
#include "support/skip.hpp"

#include <cordma/coro/task.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;
using support::manual_home;

static_assert(operation<detail::sleep_op>);
static_assert(std::is_nothrow_move_constructible_v<detail::sleep_op>);

TEST_CASE("a sleep ends at its time, not before", "[coro]") {
  manual_home home;
  support::started sleeping{home.scheduler, sleep_for(2ms)};
  home.advance(2ms - 1ns);
  CHECK_FALSE(sleeping.has_ended());
  home.advance(1ns);
  CHECK(sleeping.has_ended());
  home.run(sleep_until(time_point{5ms}));
  CHECK(home.clock.now() == time_point{5ms});
  home.run(sleep_until(time_point{1ms}));
  CHECK(home.clock.now() == time_point{5ms});
}

TEST_CASE("a sleep is stopped or abandoned, and its timer goes", "[coro]") {
  manual_home home;
  support::started stopped{home.scheduler, sleep_for(duration::max())};
  {
    const support::started abandoned{home.scheduler, sleep_for(1ms)};
  }
  stopped.request_stop();
  CHECK(home.scheduler.next_deadline() == time_point::max());
  home.settle();
  REQUIRE(stopped.has_ended());
  CHECK((*stopped).take_result().is_cancelled());
}

TEST_CASE("a sleep that is over is not taken back by a stop", "[coro]") {
  manual_home home;
  support::started sleeping{home.scheduler, sleep_for(1ms)};
  home.clock.advance(1ms);
  home.scheduler.fire_due();
  sleeping.request_stop();
  home.settle();
  CHECK((*sleeping).take_result().has_value());
}

TEST_CASE("a foreign coroutine sleeps on a scheduler that it names", "[coro]") {
  manual_home home;
  const auto foreign = [&]() -> support::foreign_task {
    const result<void> nameless = co_await as_result(sleep_for(1ms));
    CHECK(nameless.failure().code == errc::no_scheduler);
    co_await detail::sleep_op{duration{1ms}, &home.scheduler};
  };
  const support::foreign_task f = foreign();
  CHECK_FALSE(f.done());
  home.advance(1ms);
  CHECK(f.done());
  f.rethrow();
}

TEST_CASE("sleeping makes no malloc once warm", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  manual_home home;
  const auto loop = [](int count) -> task<> {
    for (int n = 0; n < count; ++n) co_await sleep_for(1ms);
  };
  home.run(loop(10));
  const auto before = support::allocation_count();
  home.run(loop(10'000));
  CHECK(support::allocation_count() == before);
}
