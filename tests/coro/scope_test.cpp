#include <cordma/coro/scope.hpp>

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"
#include "support/skip.hpp"
#include "support/stack_span.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/sleep.hpp>

#include <catch2/catch.hpp>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using support::manual_executor;

static_assert(operation<scope::join_op>);
static_assert(std::is_nothrow_move_constructible_v<scope::join_op>);

namespace {

task<> add(int& sum, int value) {
  sum += value;
  co_return;
}
task<> note_size(std::vector<std::string>& to, const std::vector<std::string>& of) {
  to.push_back(std::to_string(of.size()));
  co_return;
}
task<> fail() {
  throw error{{.code = errc::refused}};
  co_return;
}
task<> fail_after(duration length) {
  co_await sleep_for(length);
  throw error{{.code = errc::refused}};
}
task<> note_stop(event& never, int& stops) {
  try {
    co_await never.wait();
  } catch (const cancelled&) {
    ++stops;
    throw;
  }
}

}  // namespace

TEST_CASE("a scope starts its tasks at the next turn, in order, and join waits for them",
          "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  int sum = 0;
  s.spawn(add(sum, 1));
  s.spawn(add(sum, 2));
  CHECK(sum == 0);
  CHECK(s.running() == 2);
  executor.run(s.join());
  CHECK(sum == 3);
  executor.run(s.join());
}

TEST_CASE("the first error stops the others and is what join throws", "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  event never;
  int stops = 0;
  s.spawn(note_stop(never, stops));
  s.spawn(fail_after(1ms));
  s.spawn(note_stop(never, stops));
  const result<void> outcome = executor.run(as_result(s.join()));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::refused);
  CHECK(stops == 2);
  CHECK_NOTHROW(executor.run(s.join()));  // Reported once.
}

TEST_CASE("a task of a scope that ends with cancelled ended normally", "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  event never;
  int stops = 0, sum = 0;
  s.spawn(note_stop(never, stops));
  executor.settle();
  s.request_stop();
  s.spawn(add(sum, 1));
  s.spawn(note_stop(never, stops));
  CHECK_NOTHROW(executor.run(s.join()));
  CHECK(stops == 2);
  CHECK(sum == 1);
}

TEST_CASE("join passes a stop on, and waits all the same", "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  event never;
  int stops = 0;
  const auto slow_to_stop = [](event& e, int& count) -> task<> {
    static_cast<void>(co_await as_result(e.wait()));
    const cordma::scheduler* runs_on = (co_await current_environment()).scheduler;
    CHECK(runs_on != nullptr);
    ++count;
  };
  s.spawn(slow_to_stop(never, stops));
  support::started joining{executor.scheduler, s.join()};
  executor.settle();
  joining.request_stop();
  CHECK_FALSE(joining.has_ended());
  executor.settle();
  CHECK(joining.has_ended());
  CHECK(stops == 1);
  CHECK_FALSE((*joining).failed());
}

TEST_CASE("a join that is destroyed leaves the scope to be joined by another", "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  event go;
  s.spawn(go.wait());
  {
    support::started joining{executor.scheduler, s.join()};
    CHECK_FALSE(joining.has_ended());
  }
  support::started another{executor.scheduler, s.join()};
  executor.settle();
  CHECK_FALSE(another.has_ended());
  go.set();
  executor.settle();
  CHECK(another.has_ended());
  CHECK(s.running() == 0);
}

TEST_CASE("tasks spawn into their own scope", "[coro]") {
  struct tree {
    static task<> grow(scope& s, int depth, int& leaves) {
      if (depth == 0) {
        ++leaves;
        co_return;
      }
      s.spawn(grow(s, depth - 1, leaves));
      s.spawn(grow(s, depth - 1, leaves));
    }
  };
  manual_executor executor;
  scope s{executor.scheduler};
  int leaves = 0;
  s.spawn(tree::grow(s, 10, leaves));
  executor.run(s.join());
  CHECK(leaves == 1024);
}

TEST_CASE("10^4 tasks of a scope end without growing the stack", "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  support::stack_span span;
  event go;
  const auto one = [](event& e, support::stack_span& mark) -> task<> {
    mark.mark();
    co_await e.wait();
    mark.mark();
  };
  for (int n = 0; n < 10'000; ++n) s.spawn(one(go, span));
  executor.settle();
  CHECK(s.running() == 10'000);
  go.set();
  executor.run(s.join());
  CHECK(span.bytes() < support::stack_span_max);
}

TEST_CASE("joining 10^4 scopes one inside the other does not grow the stack", "[coro]") {
  struct nest {
    static task<> inner(cordma::scheduler& scheduler, int depth, support::stack_span& span) {
      if (depth > 0) {
        scope s{scheduler};
        s.spawn(inner(scheduler, depth - 1, span));
        co_await s.join();
      }
      span.mark();
    }
  };
  manual_executor executor;
  support::stack_span span;
  executor.run(nest::inner(executor.scheduler, 10'000, span));
  CHECK(span.bytes() < support::stack_span_max);
}

TEST_CASE("a scope that is destroyed destroys its tasks, the newest first", "[coro]") {
  struct tracer {
    std::string& log;
    char name;
    ~tracer() { log += name; }
  };
  manual_executor executor;
  event never;
  std::string log;
  const auto wait = [&](char name) -> task<> {
    const tracer here{log, name};
    co_await never.wait();
    log += '!';
  };
  {
    scope s{executor.scheduler};
    s.spawn(wait('a'));
    s.spawn(wait('b'));
    s.spawn([&] { return with_scope([&](scope&) { return wait('c'); }); });
    executor.settle();
    s.spawn(wait('d'));  // Destroyed before it starts.
    CHECK(log.empty());
  }
  CHECK(log == "cba");
  never.set();
  executor.settle();
  CHECK(log == "cba");
}

TEST_CASE("a foreign coroutine joins a scope", "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  int sum = 0;
  const auto foreign = [&]() -> support::foreign_task { co_await s.join(); };
  s.spawn(add(sum, 1));
  const support::foreign_task f = foreign();
  CHECK_FALSE(f.done());
  executor.settle();
  REQUIRE(f.done());
  f.rethrow();
  CHECK(sum == 1);
}

TEST_CASE("spawning makes no malloc once warm", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  manual_executor executor;
  scope s{executor.scheduler};
  int sum = 0;
  const auto spawn_some = [&](int rounds) {
    for (int n = 0; n < rounds; ++n) {
      for (int m = 0; m < 100; ++m) s.spawn(add(sum, 1));
      executor.run(s.join());
    }
  };
  spawn_some(1);
  const auto before = support::allocation_count();
  spawn_some(100);
  CHECK(support::allocation_count() == before);
}

TEST_CASE("with_scope joins what its body spawned, captures included", "[coro]") {
  manual_executor executor;
  int sum = 0;
  executor.run(with_scope([&sum](scope& s) -> task<> {
    s.spawn(add(sum, 1));
    co_await sleep_for(1ms);
    s.spawn(add(sum, 2));
  }));
  CHECK(sum == 3);
}

TEST_CASE("an exception of with_scope's body stops the tasks and comes out as it is", "[coro]") {
  manual_executor executor;
  event never;
  int stops = 0;
  CHECK_THROWS_WITH(executor.run(with_scope([&](scope& s) -> task<> {
    s.spawn(note_stop(never, stops));
    co_await sleep_for(1ms);
    throw std::runtime_error{"body"};
  })),
                    "body");
  CHECK(stops == 1);
}

TEST_CASE("an error of a task stops with_scope's body too", "[coro]") {
  manual_executor executor;
  event never;
  int stops = 0;
  CHECK_THROWS_AS(executor.run(with_scope([&](scope& s) -> task<> {
    s.spawn(fail());
    co_await note_stop(never, stops);
  })),
                  error);
  CHECK(stops == 1);
}

TEST_CASE("a stop of with_scope reaches the body and the tasks, and ends in cancelled", "[coro]") {
  manual_executor executor;
  event never;
  int stops = 0;
  support::started running{executor.scheduler, with_scope([&](scope& s) -> task<> {
                             s.spawn(note_stop(never, stops));
                             co_await note_stop(never, stops);
                           })};
  executor.settle();
  running.request_stop();
  executor.settle();
  REQUIRE(running.has_ended());
  CHECK(stops == 2);
  CHECK_THROWS_AS((*running).take(), cancelled);
}

TEST_CASE("a scope keeps the callable that it is given, and its arguments", "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  std::vector<std::string> seen;
  {
    const std::string captured(64, 'c');
    const auto note = [captured, &seen](std::unique_ptr<std::string> own,
                                        const std::string& kept) -> task<> {
      co_await sleep_for(1ms);
      seen.push_back(captured + *own + kept);
    };
    s.spawn(note, std::make_unique<std::string>("own"), std::string(64, 'k'));
    s.spawn(note, std::make_unique<std::string>("two"), "literal");
  }
  s.spawn([&seen](std::vector<std::string>& to) { return note_size(to, seen); }, std::ref(seen));
  executor.run(s.join());
  REQUIRE(seen.size() == 3);
  CHECK(seen[1] == std::string(64, 'c') + "own" + std::string(64, 'k'));
  CHECK(seen[2] == std::string(64, 'c') + "twoliteral");
}

TEST_CASE("what a spawned callable throws before its first await is the scope's error", "[coro]") {
  manual_executor executor;
  scope s{executor.scheduler};
  s.spawn([]() -> task<> { throw std::runtime_error{"no task"}; });
  CHECK_THROWS_WITH(executor.run(s.join()), "no task");
}

TEST_CASE("with_scope runs in a foreign coroutine that names a scheduler", "[coro]") {
  manual_executor executor;
  int sum = 0;
  const auto foreign = [&]() -> support::foreign_task {
    co_await with_scope(
        [&](scope& s) -> task<> {
          s.spawn(add(sum, 1));
          co_await sleep_for(1ms);
        },
        &executor.scheduler);
  };
  const support::foreign_task f = foreign();
  executor.advance(1ms);
  CHECK(f.done());
  f.rethrow();
  CHECK(sum == 1);
}

TEST_CASE("with_scope in a foreign coroutine says that it needs a scheduler", "[coro]") {
  const auto foreign = []() -> support::foreign_task {
    const result<void> outcome =
        co_await as_result(with_scope([](scope&) -> task<> { co_return; }));
    CHECK(outcome.failure().code == errc::no_scheduler);
  };
  const support::foreign_task f = foreign();
  f.rethrow();
  CHECK(f.done());
}
