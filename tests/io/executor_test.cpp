#include <cordma/io/executor.hpp>

#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/detail/io/fd_watch.hpp>

#include "fake_reactor.hpp"
#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/foreign_task.hpp"
#include "support/ready_at_once.hpp"
#include "support/skip.hpp"

#include <catch2/catch.hpp>

#include <sys/eventfd.h>

#include <ctime>
#include <thread>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;

namespace {

task<int> seven() { co_return 7; }
task<> fail() {
  throw error{{.code = errc::closed, .call = "test"}};
  co_return;
}
task<> note(std::vector<int>& order, duration after, int number) {
  co_await sleep_for(after);
  order.push_back(number);
}

std::chrono::nanoseconds cpu_time_of_this_thread() {
  timespec t{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
}

}  // namespace

TEST_CASE("run gives the value of a task, or throws what it threw", "[io]") {
  executor exec;
  CHECK(exec.run(seven()) == 7);
  CHECK_THROWS_AS(exec.run(fail()), error);
  const auto outcome = exec.run(as_result(fail()));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::closed);
  CHECK(std::get<0>(exec.run(when_all(seven(), seven()))) == 7);
}

TEST_CASE("what is put off to the last has happened when run returns", "[io]") {
  struct counted : waiter {
    counted() noexcept : waiter{&count} {}
    static std::coroutine_handle<> count(waiter& self) noexcept {
      ++static_cast<counted&>(self).calls;
      return std::noop_coroutine();
    }
    int calls = 0;
  } last;
  executor exec;
  const auto put_off = [](cordma::executor& executor, counted& w) -> task<> {
    CHECK(executor.is_running());
    executor.schedule_last(w);
    co_return;
  };
  exec.run(put_off(exec, last));
  CHECK(last.calls == 1);
  CHECK_FALSE(exec.is_running());
}

TEST_CASE("an executor can be made on one thread and run on another", "[io]") {
  executor exec;
  std::thread other{[&] {
    exec.run(exec.sleep_for(1us));
    exec.post([] {});
    exec.run(exec.sleep_for(1us));
  }};
  other.join();
  CHECK(exec.counters().posted == 1);
}

TEST_CASE("run asserts when it is nested, and on a second thread", "[io]") {
  const support::death nested = support::run_in_child([] {
    executor exec;
    exec.post([&] { exec.run(seven()); });
    exec.run(exec.sleep_for(1us));
  });
  CHECK(nested.aborted);
  CHECK_THAT(nested.text, Catch::Contains("while it runs"));
  const support::death elsewhere = support::run_in_child([] {
    executor exec;
    exec.run(seven());
    std::thread{[&] { exec.run(seven()); }}.join();
  });
  CHECK(elsewhere.aborted);
  CHECK_THAT(elsewhere.text, Catch::Contains("belongs to the thread"));
}

TEST_CASE("sleeps end in the order of their deadlines, on a clock turned by hand", "[io]") {
  fake_time fake;
  std::vector<int> order;
  fake.exec.run(
      when_all(note(order, 3h, 3), note(order, 1h, 1), note(order, 2h, 2), note(order, 1h, 4)));
  CHECK(order == std::vector{1, 4, 2, 3});
  CHECK(fake.clock.now() == time_point{} + 3h);
  CHECK(fake.exec.counters().waits == 3);
}

TEST_CASE("sleeps end in order on the kernel's clock, and never early", "[io]") {
  executor exec;
  std::vector<int> order;
  const time_point begin = exec.now();
  exec.run(when_all(note(order, 3ms, 3), note(order, 1ms, 1), note(order, 2ms, 2)));
  CHECK(order == std::vector{1, 2, 3});
  CHECK(exec.now() - begin >= 3ms);
  CHECK(exec.counters().waits <= 4);
}

TEST_CASE("sleeping until a time that has passed, even before the epoch, ends at once", "[io]") {
  executor exec;
  exec.run(exec.sleep_until(time_point{} - 1h));
  exec.run(exec.sleep_for(-1ms));
  CHECK(exec.counters().waits <= 2);
}

TEST_CASE("a deadline beyond the end of time is taken, and overtaken by an earlier one", "[io]") {
  executor exec;
  const auto body = [](executor& e) -> task<> {
    co_await e.sleep_for(1us);
    co_await e.sleep_for(1us);
  };
  exec.run(with_timeout(body(exec), duration::max()));
  CHECK(exec.counters().waits <= 4);
}

TEST_CASE("an earlier timer overtakes an armed alarm", "[io]") {
  executor exec;
  const auto first = [](executor& e) -> task<> {
    const auto outcome = co_await as_result(with_timeout(
        [](executor& inner) -> task<> {
          co_await inner.sleep_for(1ms);
          co_await inner.sleep_for(1h);
        }(e),
        5ms));
    CHECK(outcome.failure().code == errc::timed_out);
  };
  const time_point begin = exec.now();
  exec.run(with_timeout(first(exec), 1h));
  CHECK(exec.now() - begin < 10s);
}

TEST_CASE("a hundred thousand timers are set and cancelled without an alarm each", "[io]") {
  fake_time fake;
  constexpr std::size_t count = 100'000;
  const auto churn = [](executor& exec) -> task<> {
    event never;
    for (std::size_t i = 0; i < count; ++i) {
      event now;
      now.set();
      co_await with_timeout(now.wait(), 1h + std::chrono::microseconds{i});
      static_cast<void>(co_await as_result(with_timeout(never.wait(), 1us)));
    }
    CHECK(exec.next_deadline() == time_point::max());
  };
  fake.exec.run(churn(fake.exec));
  CHECK(fake.clock.now() == time_point{} + count * 1us);

  const std::size_t before = fake.reactor->alarms_set;
  const auto many = [](executor& exec) -> task<> {
    stop_source stop;
    std::vector<detail::sleep_op> sleeps;
    for (std::size_t i = 0; i < count; ++i) sleeps.push_back(exec.sleep_for(1h + i * 1us));
    detail::end_flag flag;
    for (detail::sleep_op& each : sleeps) each.start(flag, environment{&exec, stop});
    co_await exec.sleep_for(1us);
    sleeps.clear();  // Half of the ways to cancel: destroying.
    CHECK(exec.next_deadline() == time_point::max());
  };
  fake.exec.run(many(fake.exec));
  CHECK(fake.reactor->alarms_set - before <= 2);
}

TEST_CASE("sleep_for of an executor works in a coroutine of a foreign type", "[io]") {
  fake_time fake;
  event done;
  const auto body = [](executor& exec, event& e) -> support::foreign_task {
    co_await exec.sleep_for(1h);
    e.set();
  };
  const auto frame = body(fake.exec, done);
  fake.exec.run(done.wait());
  CHECK(fake.clock.now() == time_point{} + 1h);
}

TEST_CASE("run goes on until the closer is empty", "[io]") {
  fake_time fake;
  std::vector<int> order;
  fake.exec.closer().spawn(note(order, 1h, 1));
  CHECK(fake.exec.run(seven()) == 7);
  CHECK(order == std::vector{1});
  CHECK(fake.exec.closer().running() == 0);
}

TEST_CASE("an idle executor burns no CPU while a timer is pending", "[io][E8]") {
  executor exec;
  exec.run(exec.sleep_for(1us));
  const std::uint64_t waits = exec.counters().waits;
  const auto before = cpu_time_of_this_thread();
  exec.run(exec.sleep_for(200ms));
  CHECK(cpu_time_of_this_thread() - before < 20ms);
  CHECK(exec.counters().waits - waits <= 2);
}

TEST_CASE("sleeping and waiting for a descriptor allocate nothing once warm", "[io]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under sanitizers");
  executor exec;
  const unique_fd fd{::eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)};
  const auto body = [](executor& e, int descriptor, int rounds) -> task<> {
    for (int i = 0; i < rounds; ++i) {
      co_await readable(e, descriptor);
      co_await with_timeout(readable(e, descriptor), 1s);
      co_await sleep_for(1us);
    }
  };
  exec.run(body(exec, fd.get(), 100));
  const std::uint64_t before = support::allocation_count();
  exec.run(body(exec, fd.get(), 10'000));
  CHECK(support::allocation_count() - before == 0);
}

namespace {

/// Counts the inline polls of a iteration. In the next iteration, or after very many, its event is
/// set.
struct inline_polls final : poller, private detail::iteration_end_hook {
  explicit inline_polls(cordma::executor& e) noexcept : exec{e}, over{e} {}
  std::size_t poll() noexcept override {
    if (iteration == 0) return 0;
    if (exec.counters().iterations == iteration && ++polls < 10'000) {
      if (polls == puts_off_at) exec.at_iteration_end(*this);
      return 0;
    }
    iteration = 0;
    over.set();
    return 1;
  }
  bool prepare_wait() noexcept override { return true; }

  cordma::executor& exec;
  event over;
  std::uint64_t iteration = 0;
  int polls = 0;
  int puts_off_at = -1;  // The poll that puts something off to the end of the iteration.

 private:
  void on_iteration_end() noexcept override {}
};

/// Waits, as the only one of its iteration.
task<> wait_counted(inline_polls& counted) {
  co_await counted.exec.sleep_for(duration{0});
  counted.iteration = counted.exec.counters().iterations;
  co_await counted.over.wait();
}

/// Sets an event at each poll.
struct always_ready final : poller {
  explicit always_ready(cordma::executor& e) noexcept : came{std::in_place, e} {}
  std::size_t poll() noexcept override {
    came->set();
    return 1;
  }
  bool prepare_wait() noexcept override { return true; }
  std::optional<event> came;
};

}  // namespace

TEST_CASE("who waits alone polls once inline where the executor may sleep", "[io]") {
  executor exec;
  inline_polls counted{exec};
  exec.add(counted);
  exec.run(wait_counted(counted));
  CHECK(counted.polls == 1);
}

TEST_CASE("who waits alone polls inline up to a limit where nobody may sleep", "[io]") {
  executor exec;
  inline_polls counted{exec};
  exec.add_restless(counted);
  exec.run(wait_counted(counted));
  CHECK(counted.polls ==
        505);  // Eight of the 512 polls pay for the wait, and the last may overdraw.
}

TEST_CASE(
    "who waits alone polls no more inline once something is put off to the end of the iteration",
    "[io]") {
  executor exec;
  inline_polls counted{exec};
  counted.puts_off_at = 3;
  exec.add_restless(counted);
  exec.run(wait_counted(counted));
  CHECK(counted.polls == 3);
}

TEST_CASE("a task whose waits all end inline is suspended after some of them", "[io]") {
  executor exec;
  always_ready ready{exec};
  exec.add(ready);
  const auto count = [](cordma::executor& where, always_ready& device) -> task<int> {
    co_await where.sleep_for(duration{0});
    const std::uint64_t iteration = where.counters().iterations;
    int waits = 0;
    for (; where.counters().iterations == iteration && waits < 10'000; ++waits) {
      device.came.emplace(where);
      co_await device.came->wait();
    }
    co_return waits;
  };
  CHECK(exec.run(count(exec, ready)) == 58);  // Inline waits take nine of 512 polls, the last none.
}

TEST_CASE("a task whose waits have used up the inline polls keeps no timer waiting", "[io]") {
  fake_time fake;
  always_ready ready{fake.exec};
  fake.exec.add(ready);
  int waits = 0;
  const auto body = [&]() -> task<> {
    co_await fake.exec.sleep_for(duration{0});
    fake.clock.advance(1h);
    for (; waits < 10'000; ++waits) {
      ready.came.emplace(fake.exec);
      co_await ready.came->wait();
    }
  };
  CHECK(fake.exec.run(as_result(with_timeout(body(), 1h))).failure().code == errc::timed_out);
  CHECK(waits == 57);
}

TEST_CASE("a task that awaits what is ready at once keeps no posted call waiting", "[io]") {
  executor exec;
  const auto body = [](cordma::executor& where) -> task<int> {
    co_await where.sleep_for(duration{0});
    bool called = false;
    where.post([&] { called = true; });
    int waits = 0;
    for (; !called && waits < 100'000; ++waits) co_await support::ready_at_once{};
    co_return waits;
  };
  CHECK(exec.run(body(exec)) < 200);
}
