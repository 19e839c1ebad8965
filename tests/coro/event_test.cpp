#include <cordma/coro/event.hpp>

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"
#include "support/skip.hpp"

#include <cordma/coro/scope.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <optional>

using namespace cordma;
using support::foreign_task;
using support::manual_executor;

static_assert(operation<event::wait_op>);
static_assert(std::is_nothrow_move_constructible_v<event::wait_op>);

TEST_CASE("setting an event wakes all who wait, at their scheduler's next turn", "[coro]") {
  manual_executor executor;
  event e;
  support::started a{executor.scheduler, e.wait()}, b{executor.scheduler, e.wait()};
  e.set();
  CHECK_FALSE(a.has_ended());
  e.reset();  // Waiters that were woken stay woken.
  executor.settle();
  CHECK(a.has_ended());
  CHECK(b.has_ended());
  const support::started late{executor.scheduler, e.wait()};
  executor.settle();
  CHECK_FALSE(late.has_ended());
}

TEST_CASE("a wait for an event is stopped or abandoned without a trace", "[coro]") {
  manual_executor executor;
  event e;
  support::started stopped{executor.scheduler, e.wait()};
  {
    const support::started abandoned{executor.scheduler, e.wait()};
  }
  stopped.request_stop();
  e.set();
  executor.settle();
  REQUIRE(stopped.has_ended());
  CHECK((*stopped).take_result().is_cancelled());
}

TEST_CASE("an event that is set wins over a stop that came before the wait", "[coro]") {
  manual_executor executor;
  event e;
  e.set();
  stop_source stop;
  stop.request_stop();
  detail::end_flag flag;
  auto op = e.wait();
  REQUIRE(op.start(flag, {&executor.scheduler, stop}));
  CHECK_FALSE(op.failed());
}

TEST_CASE("an event that is destroyed while awaited is a broken contract", "[coro]") {
  CHECK(support::run_in_child([] {
          manual_executor executor;
          std::optional<event> e{std::in_place};
          support::started waiting{executor.scheduler, e->wait()};
          e.reset();
        }).aborted);
}

TEST_CASE("a foreign coroutine is resumed inside set", "[coro]") {
  event e;
  int woken = 0;
  const auto foreign = [&]() -> foreign_task {
    co_await e.wait();
    ++woken;
  };
  const foreign_task a = foreign(), b = foreign();
  e.set();
  CHECK(woken == 2);
}

TEST_CASE("a foreign coroutine may reset the event that woke it and wait again", "[coro]") {
  event e;
  int rounds = 0;
  const auto foreign = [&]() -> foreign_task {
    for (;;) {
      co_await e.wait();
      e.reset();
      ++rounds;
    }
  };
  const foreign_task a = foreign();
  for (int n = 1; n <= 100; ++n) {
    e.set();
    REQUIRE(rounds == n);
  }
}

TEST_CASE("a foreign coroutine may destroy the event that woke it, and others that wait",
          "[coro]") {
  auto e = std::make_unique<event>();
  std::optional<foreign_task> other;
  const auto destroyer = [&]() -> foreign_task {
    co_await e->wait();
    other.reset();
    e.reset();
  };
  const auto waits = [](event& of) -> foreign_task { co_await of.wait(); };
  const foreign_task first = destroyer();
  other.emplace(waits(*e));
  e->set();
  CHECK(first.done());
  CHECK(e == nullptr);
}

TEST_CASE("waiting for events makes no malloc once warm", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  manual_executor executor;
  event ping, pong;
  const auto player = [](event& mine, event& other, int count) -> task<> {
    for (int n = 0; n < count; ++n) {
      co_await mine.wait();
      mine.reset();
      other.set();
    }
  };
  const auto play = [&](int count) {
    scope s{executor.scheduler};
    s.spawn(player(ping, pong, count));
    s.spawn(player(pong, ping, count));
    ping.set();
    executor.run(s.join());
    ping.reset();
  };
  play(10);
  const auto before = support::allocation_count();
  play(10'000);
  CHECK(support::allocation_count() == before);
}
