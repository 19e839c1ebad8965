#include <cordma/coro/with_timeout.hpp>

#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"
#include "support/stack_span.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;
using support::manual_executor;

static_assert(operation<detail::with_timeout_op<detail::sleep_op>> &&
              operation<detail::with_timeout_op<task<int>&>>);
static_assert(std::is_nothrow_move_constructible_v<detail::with_timeout_op<detail::sleep_op>>);

namespace {

task<int> give_after(duration length) {
  co_await sleep_for(length);
  co_return 7;
}
std::error_code code_of(manual_executor& executor, auto&& op) {
  const auto outcome = executor.run(as_result(std::move(op)));
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

}  // namespace

TEST_CASE("an operation that takes too long is stopped and ends in timed_out", "[coro]") {
  manual_executor executor;
  event never;
  CHECK(code_of(executor, with_timeout(never.wait(), 5ms)) == errc::timed_out);
  CHECK(executor.clock.now() == time_point{5ms});
  try {
    executor.run(with_timeout(give_after(2ms), 1ms));
    FAIL("no exception");
  } catch (const error& e) {
    CHECK(e.code() == errc::timed_out);
  }
}

TEST_CASE("an operation that ends in time keeps its value, and its timer goes", "[coro]") {
  manual_executor executor;
  CHECK(executor.run(with_timeout(give_after(1ms), 2ms)) == 7);
  CHECK(executor.scheduler.next_deadline() == time_point::max());
  task<int> kept = give_after(1ms);
  CHECK(executor.run(with_timeout(kept, 2ms)) == 7);
}

TEST_CASE("in a tie the operation that ended by itself keeps its value", "[coro]") {
  manual_executor executor;
  event e;
  support::started waiting{executor.scheduler, with_timeout(e.wait(), 1ms)};
  e.set();
  executor.clock.advance(1ms);
  executor.scheduler.fire_due();
  executor.settle();
  REQUIRE(waiting.has_ended());
  CHECK((*waiting).take_result().has_value());
}

TEST_CASE("a limit of nothing lets pass what ends at once, and only that", "[coro]") {
  manual_executor executor;
  event set, never;
  set.set();
  CHECK_NOTHROW(executor.run(with_timeout(set.wait(), 0ms)));
  CHECK(code_of(executor, with_timeout(never.wait(), 0ms)) == errc::timed_out);
  CHECK(code_of(executor, with_timeout(never.wait(), duration::min())) == errc::timed_out);
}

TEST_CASE("a limit beyond the clock is no limit", "[coro]") {
  manual_executor executor;
  executor.clock.advance(1h);
  CHECK(executor.run(with_timeout(give_after(1ms), duration::max())) == 7);
}

TEST_CASE("a stop from above is a stop, not a time-out", "[coro]") {
  manual_executor executor;
  event never;
  support::started waiting{executor.scheduler, with_timeout(never.wait(), 1ms)};
  waiting.request_stop();
  executor.advance(1ms);
  REQUIRE(waiting.has_ended());
  CHECK((*waiting).take_result().is_cancelled());

  stop_source stopped;
  stopped.request_stop();
  detail::end_flag flag;
  auto late = with_timeout(never.wait(), 0ms);
  REQUIRE(late.start(flag, {&executor.scheduler, stopped}));
  CHECK(late.take_result().is_cancelled());
}

TEST_CASE("of nested time-outs the shorter one speaks", "[coro]") {
  manual_executor executor;
  event never;
  const auto inner_says = [](event& e, duration inner, errc& seen) -> task<> {
    const auto outcome = co_await as_result(with_timeout(e.wait(), inner));
    if (outcome.has_failure()) seen = errc(outcome.failure().code.value());
    if (outcome.is_cancelled()) throw cancelled{};
  };
  errc seen{};
  CHECK_NOTHROW(executor.run(with_timeout(inner_says(never, 1ms, seen), 2ms)));
  CHECK(seen == errc::timed_out);
  seen = {};
  CHECK(code_of(executor, with_timeout(inner_says(never, 2ms, seen), 1ms)) == errc::timed_out);
  CHECK(seen == errc{});
}

TEST_CASE("what fails by itself keeps its error", "[coro]") {
  manual_executor executor;
  const auto fail = []() -> task<> {
    throw error{{.code = errc::refused}};
    co_return;
  };
  CHECK(code_of(executor, with_timeout(fail(), 1ms)) == errc::refused);
}

TEST_CASE("a foreign coroutine names the scheduler of its time-outs", "[coro]") {
  manual_executor executor;
  event never;
  const auto foreign = [&]() -> support::foreign_task {
    const result<void> nameless = co_await as_result(with_timeout(never.wait(), 1ms));
    CHECK(nameless.failure().code == errc::no_scheduler);
    const result<void> named =
        co_await as_result(with_timeout(never.wait(), 1ms, &executor.scheduler));
    CHECK(named.failure().code == errc::timed_out);
  };
  const support::foreign_task f = foreign();
  executor.advance(1ms);
  CHECK(f.done());
  f.rethrow();
}

TEST_CASE("a foreign coroutine has time-outs of what knows its scheduler", "[coro]") {
  manual_executor executor;
  event never{executor.scheduler};
  const auto foreign = [&]() -> support::foreign_task {
    const result<void> late = co_await as_result(with_timeout(never.wait(), 1ms));
    CHECK(late.failure().code == errc::timed_out);
    const auto first = co_await when_any(never.wait(), sleep_for(1ms));
    CHECK(first.index() == 1);
    const auto both =
        co_await as_result(with_timeout(when_all(as_result(never.wait()), sleep_for(1h)), 1ms));
    CHECK(both.failure().code == errc::timed_out);
  };
  const support::foreign_task f = foreign();
  for (int i = 0; i < 3; ++i) executor.advance(1ms);
  CHECK(f.done());
  f.rethrow();
}

TEST_CASE("a limit that no clock can count is for ever", "[coro]") {
  manual_executor executor;
  event never;
  support::started waits{executor.scheduler,
                         with_timeout(never.wait(), std::chrono::milliseconds::max())};
  support::started sleeps{executor.scheduler, sleep_for(std::chrono::hours::max())};
  executor.advance(24h * 365 * 100);
  CHECK_FALSE(waits.has_ended());
  CHECK_FALSE(sleeps.has_ended());
  never.set();
  executor.settle();
  CHECK((*waits).take_result().has_value());
}

TEST_CASE("time-outs of tasks that end at once do not grow the stack", "[coro]") {
  manual_executor executor;
  support::stack_span span;
  const auto one = [](support::stack_span& s) -> task<> {
    s.mark();
    co_return;
  };
  const auto loop = [&]() -> task<> {
    for (int n = 0; n < 100'000; ++n) co_await with_timeout(one(span), 1ms);
  };
  executor.run(loop());
  CHECK(span.bytes() < support::stack_span_max);
}
