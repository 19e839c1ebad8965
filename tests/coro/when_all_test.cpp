#include <cordma/coro/when_all.hpp>

#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <stdexcept>

using namespace cordma;
using namespace std::chrono_literals;
using support::manual_executor;

static_assert(operation<detail::when_all_op<event::wait_op, task<int>>>);
static_assert(operation<detail::when_all_op<task<int>&>> && operation<detail::when_all_op<>>);
static_assert(
    std::is_nothrow_move_constructible_v<detail::when_all_op<event::wait_op, detail::sleep_op>>);

namespace {

task<int> give_after(duration length, int value) {
  co_await sleep_for(length);
  co_return value;
}
task<std::unique_ptr<int>> give_owner(int value) { co_return std::make_unique<int>(value); }
task<> fail_after(duration length, errc code) {
  co_await sleep_for(length);
  throw error{{.code = code}};
}
task<> count_stop(event& never, int& stops) {
  const result<void> outcome = co_await as_result(never.wait());
  if (outcome.is_cancelled()) ++stops;
}

}  // namespace

TEST_CASE("when_all gives every value, in the order of its operations", "[coro]") {
  manual_executor executor;
  event set;
  set.set();
  auto [slow, none, owner] = executor.run(when_all(give_after(2ms, 1), set.wait(), give_owner(3)));
  CHECK(slow == 1);
  CHECK(none == std::monostate{});
  CHECK(*owner == 3);
  CHECK(executor.clock.now() == time_point{2ms});
  CHECK(executor.run(when_all()) == std::tuple{});
}

TEST_CASE("the first failure stops the rest, and is thrown when all have ended", "[coro]") {
  manual_executor executor;
  event never;
  int stops = 0;
  auto all = when_all(count_stop(never, stops), fail_after(1ms, errc::refused),
                      count_stop(never, stops), fail_after(2ms, errc::closed));
  const auto outcome = executor.run(as_result(all));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::refused);
  CHECK(stops == 2);
  CHECK(executor.clock.now() == time_point{1ms});
}

TEST_CASE("a failure before the others have started stops those as well", "[coro]") {
  manual_executor executor;
  event never;
  const auto fail = []() -> task<> {
    throw std::runtime_error{"at once"};
    co_return;
  };
  CHECK_THROWS_WITH(executor.run(when_all(fail(), never.wait())), "at once");
}

TEST_CASE("when_all takes handles and other lvalues by reference", "[coro]") {
  manual_executor executor;
  task<int> kept = give_after(1ms, 9);
  semaphore s{1};
  auto permit = s.acquire();
  CHECK(std::get<0>(executor.run(when_all(kept, permit))) == 9);
}

TEST_CASE("a stop of when_all reaches every operation", "[coro]") {
  manual_executor executor;
  event never;
  int stops = 0;
  support::started all{executor.scheduler,
                       when_all(count_stop(never, stops), when_all(never.wait()))};
  all.request_stop();
  executor.settle();
  REQUIRE(all.has_ended());
  CHECK(stops == 1);
  CHECK((*all).take_result().is_cancelled());
}

TEST_CASE("a foreign coroutine awaits combinators whose children end in place", "[coro]") {
  event first, second, never;
  int finished = 0;
  const auto wait_both = [](event& a, event& b) -> task<> {
    co_await when_any(a.wait(), b.wait());
  };
  const auto foreign = [&]() -> support::foreign_task {
    co_await when_all(first.wait(), second.wait());
    ++finished;
    // The stop of the loser ends a task, whose own when_any goes while it is being stopped.
    co_await when_any(wait_both(never, never), first.wait());
    ++finished;
    first.reset();
    second.reset();
    const auto outcome = co_await as_result(when_any(second.wait(), wait_both(never, never)));
    CHECK(outcome.has_value());
    ++finished;
  };
  const support::foreign_task f = foreign();
  first.set();
  CHECK(finished == 0);
  second.set();
  CHECK(finished == 2);
  second.set();
  CHECK(finished == 3);
  CHECK(f.done());
  f.rethrow();
}
