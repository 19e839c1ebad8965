#include <cordma/coro/sync_wait.hpp>

#include "support/aborts.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;

TEST_CASE("sync_wait gives the value of a task or of any operation", "[coro]") {
  event set;
  set.set();
  sync_wait(set.wait());
  auto kept = []() -> task<int> { co_return 4; }();
  CHECK(sync_wait(kept) == 4);
}

TEST_CASE("sync_wait serves the timers of the real clock", "[coro]") {
  cordma::scheduler scheduler;
  const time_point before = scheduler.now();
  sync_wait(scheduler, sleep_for(1ms));
  CHECK(scheduler.now() - before >= 1ms);
}

TEST_CASE("coroutines that keep each other ready do not keep timers waiting", "[coro]") {
  const auto yield_forever = []() -> task<> {
    for (;;) co_await sleep_for(duration{});
  };
  CHECK(sync_wait(when_any(yield_forever(), sleep_for(1ms))).index() == 1);
}

TEST_CASE("sync_wait on what nothing can end is a broken contract", "[coro]") {
  const auto death = support::run_in_child([] {
    event never;
    sync_wait(never.wait());
  });
  CHECK(death.aborted);
  CHECK(death.text.find("nothing is left") != std::string::npos);
}
