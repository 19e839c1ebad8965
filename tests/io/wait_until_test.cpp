#include <cordma/io/wait_until.hpp>

#include <cordma/coro/event.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include "support/allocations.hpp"
#include "support/manual_executor.hpp"

#include <catch2/catch.hpp>

#include <optional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using support::started;

namespace {

/// Becomes true when it has been asked so often.
struct nth_time {
  int& asked;
  int n;
  bool operator()() const noexcept { return ++asked >= n; }
};

struct quiet final : poller {
  std::size_t poll() noexcept override {
    ++polls;
    return 0;
  }
  bool prepare_wait() noexcept override { return true; }
  int polls = 0;
};

/// A task that is alone, and may look.
task<> wait_once(cordma::executor& executor, int& asked, int n) {
  co_await wait_until(executor, nth_time{asked, n});
}

task<> set_after_iterations(cordma::executor& executor, bool& flag, int iterations) {
  for (; iterations > 0; --iterations) co_await executor.sleep_for(duration{0});
  flag = true;
}

}  // namespace

TEST_CASE("what is true already is not waited for", "[io]") {
  cordma::executor executor;
  int asked = 0;
  executor.run(wait_until(executor, nth_time{asked, 1}));
  executor.run(wait_once(executor, asked = 0, 1));
  CHECK(asked == 1);
  CHECK(executor.counters().iterations == 0);
}

TEST_CASE("while a condition is waited for the executor does not sleep", "[io]") {
  cordma::executor executor;
  int asked = 0;
  executor.run(wait_until(executor, nth_time{asked, 1000}));
  CHECK(asked == 1000);
  CHECK(executor.counters().waits == 0);
}

TEST_CASE("while a condition is asked for, pollers are asked in between", "[io]") {
  cordma::executor executor;
  quiet device;
  executor.add(device);
  int asked = 0;
  executor.run(wait_until(executor, nth_time{asked, 100}));
  CHECK(device.polls >= 99);
}

TEST_CASE("who waits alone for a condition looks, and goes through no turns", "[io]") {
  cordma::executor executor;
  quiet device;
  executor.add(device);
  int asked = 0;
  const auto twice = [](cordma::executor& where, int& so_often) -> task<> {
    co_await where.sleep_for(duration{0});  // begins a turn of its own
    const std::uint64_t iterations = where.counters().iterations;
    const std::uint64_t allocated = support::thread_allocation_count();
    co_await wait_until(where, nth_time{so_often, 200});
    CHECK(where.counters().iterations == iterations);
    CHECK(support::thread_allocation_count() == allocated);
    // A wait makes at most as many polls as a turn makes, and then others have theirs.
    co_await wait_until(where, nth_time{so_often = 0, 2000});
    CHECK(where.counters().iterations > iterations);
  };
  executor.run(twice(executor, asked));
  CHECK(device.polls >= 2000);
}

TEST_CASE("others go on while a condition is waited for, and make it true", "[io]") {
  cordma::executor executor;
  quiet device;
  executor.add(device);
  bool flag = false;
  executor.run(when_all(wait_until(executor, [&] { return flag; }),
                        set_after_iterations(executor, flag, 20)));
  CHECK(executor.counters().waits == 0);
  flag = false;
  executor.run(when_all(set_after_iterations(executor, flag, 20),
                        wait_until(executor, [&] { return flag; })));
}

TEST_CASE("who looks for one condition looks for those of others, too", "[io]") {
  cordma::executor executor;
  quiet device;
  executor.add(device);
  int asked = 0;
  bool flag = false;
  const auto first = [](cordma::executor& where, int& so_often, bool& to_set) -> task<> {
    co_await wait_until(where, nth_time{so_often, 50});
    to_set = true;
  };
  const auto second = [](cordma::executor& where, bool& awaited) -> task<> {
    co_await where.sleep_for(duration{0});
    co_await wait_until(where, [&] { return awaited; });
  };
  executor.run(when_all(first(executor, asked, flag), second(executor, flag)));
  CHECK(asked == 50);
}

TEST_CASE("who looks for a condition overtakes nobody whom the same look made ready", "[io]") {
  struct both_at_once final : poller {
    std::size_t poll() noexcept override {
      if (!counts || ++polls != 20) return 0;
      flag = true;
      told.set();
      return 1;
    }
    bool prepare_wait() noexcept override { return false; }
    bool counts = false;
    int polls = 0;
    bool flag = false;
    event told;
  } device;
  cordma::executor executor;
  executor.add(device);
  std::vector<int> order;
  const auto first = [](both_at_once& by, std::vector<int>& to) -> task<> {
    co_await by.told.wait();
    to.push_back(1);
  };
  const auto second = [](cordma::executor& where, both_at_once& by,
                         std::vector<int>& to) -> task<> {
    co_await where.sleep_for(duration{0});
    by.counts = true;
    co_await wait_until(where, [&] { return by.flag; });
    to.push_back(2);
  };
  executor.run(when_all(first(device, order), second(executor, device, order)));
  CHECK(order == std::vector{1, 2});
}

TEST_CASE("several may wait for conditions, and each ends by its own", "[io]") {
  cordma::executor executor;
  int a = 0, b = 0, c = 0;
  executor.run(when_all(wait_until(executor, nth_time{a, 30}),
                        wait_until(executor, nth_time{b, 10}),
                        wait_until(executor, nth_time{c, 20})));
  CHECK(a == 30);
  CHECK(b == 10);
  CHECK(c == 20);
}

TEST_CASE("timers fire while a condition is waited for: one that never comes is given up", "[io]") {
  manual_clock clock;
  cordma::executor executor{{.clock = &clock}};
  quiet device;
  executor.add(device);
  const auto never = [&] {
    clock.advance(1us);
    return false;
  };
  const auto outcome = executor.run(as_result(with_timeout(wait_until(executor, never), 1ms)));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::timed_out);
}

TEST_CASE("a wait for a condition can be stopped, before it begins and later", "[io]") {
  cordma::executor executor;
  int asked = 0;
  std::optional<started<detail::wait_until_op<nth_time>>> wait{
      std::in_place, executor, wait_until(executor, nth_time{asked, 1 << 30})};
  CHECK_FALSE(wait->has_ended());
  wait->request_stop();
  executor.run(wait_until(executor, [&] { return wait->has_ended(); }));
  CHECK((**wait).failed());
  CHECK((**wait).take_result().is_cancelled());
  const int asked_before = asked;
  executor.run(executor.sleep_for(duration{0}));
  CHECK(asked == asked_before);

  stop_source stopped;
  stopped.request_stop();
  detail::end_flag w;
  detail::wait_until_op<nth_time> never{executor, nth_time{asked, 1}};
  CHECK(never.start(w, environment{&executor, stopped}));
  CHECK(never.take_result().is_cancelled());
  CHECK(asked == asked_before);
}

TEST_CASE("a wait for a condition that is destroyed is forgotten, and the executor sleeps again",
          "[io]") {
  cordma::executor executor;
  int asked = 0;
  {
    const started wait{executor, wait_until(executor, nth_time{asked, 1 << 30})};
    executor.run(executor.sleep_for(duration{0}));
    CHECK(asked > 1);
  }
  const int asked_before = asked;
  const std::uint64_t waits = executor.counters().waits;
  executor.run(executor.sleep_for(1ms));
  CHECK(asked == asked_before);
  CHECK(executor.counters().waits > waits);
}
