#include <cordma/io/executor.hpp>

#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/fd_watch.hpp>

#include "died.hpp"
#include "fake_reactor.hpp"
#include "foreign.hpp"
#include "support/allocations.hpp"

#include <catch2/catch.hpp>

#include <sys/eventfd.h>

#include <ctime>

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
  CHECK(aborts([] {
    executor exec;
    exec.post([&] { exec.run(seven()); });
    exec.run(exec.sleep_for(1us));
  }));
  CHECK(aborts([] {
    executor exec;
    exec.run(seven());
    std::thread{[&] { exec.run(seven()); }}.join();
  }));
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
    CHECK_FALSE(exec.next_deadline().has_value());
  };
  fake.exec.run(churn(fake.exec));
  CHECK(fake.clock.now() == time_point{} + count * 1us);

  const std::size_t before = fake.reactor->alarms_set;
  const auto many = [](executor& exec) -> task<> {
    stop_source stop;
    std::vector<sleep_op> sleeps;
    for (std::size_t i = 0; i < count; ++i) sleeps.push_back(exec.sleep_for(1h + i * 1us));
    detail::end_flag flag;
    for (sleep_op& each : sleeps) each.start(flag, environment{&exec, stop});
    co_await exec.sleep_for(1us);
    sleeps.clear();  // Half of the ways to cancel: destroying.
    CHECK_FALSE(exec.next_deadline().has_value());
  };
  fake.exec.run(many(fake.exec));
  CHECK(fake.reactor->alarms_set - before <= 2);
}

TEST_CASE("sleep_for of an executor works in a coroutine of a foreign type", "[io]") {
  fake_time fake;
  event done;
  const auto body = [](executor& exec, event& e) -> foreign {
    co_await exec.sleep_for(1h);
    e.set();
  };
  body(fake.exec, done);
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

TEST_CASE("what is posted runs in order, and what never runs is destroyed", "[io]") {
  std::vector<int> order;
  const auto witness = std::make_shared<int>(0);
  {
    executor exec;
    for (int i = 0; i < 3; ++i) exec.post([&order, i] { order.push_back(i); });
    exec.run(exec.sleep_for(1us));
    CHECK(order == std::vector{0, 1, 2});
    exec.post([witness] { ++*witness; });
    CHECK(witness.use_count() == 2);
  }
  CHECK(witness.use_count() == 1);
  CHECK(*witness == 0);
}

TEST_CASE("calls posted by four threads all run once and wake a sleeping executor", "[io]") {
  constexpr int threads = 4;
  constexpr int each = 25'000;
  executor exec;
  event all;
  std::vector<int> last(threads, -1);
  int count = 0;
  bool in_order = true;
  std::vector<std::thread> posters;
  for (int t = 0; t < threads; ++t) {
    posters.emplace_back([&, t] {
      for (int i = 0; i < each; ++i) {
        exec.post([&, t, i] {
          in_order &= std::exchange(last[std::size_t(t)], i) == i - 1;
          if (++count == threads * each) all.set();
        });
        if (i % 64 == 0) std::this_thread::yield();  // Lets the executor fall asleep now and then.
      }
    });
  }
  exec.run(all.wait());
  for (std::thread& poster : posters) poster.join();
  CHECK(count == threads * each);
  CHECK(in_order);
  CHECK(exec.counters().posted == threads * each);
}

TEST_CASE("each of ten thousand single posts finds a sleeping executor and wakes it", "[io][E3]") {
  executor exec;
  event all;
  std::atomic<int> answered = 0;
  constexpr int count = 10'000;
  std::thread poster{[&] {
    for (int i = 0; i < count; ++i) {
      exec.post([&] { answered.fetch_add(1, std::memory_order_release); });
      while (answered.load(std::memory_order_acquire) <= i) std::this_thread::yield();
    }
    exec.post([&] { all.set(); });
  }};
  exec.run(all.wait());
  poster.join();
  CHECK(answered == count);
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

namespace {

class spinner final : public poller {
 public:
  bool poll() noexcept override {
    ++polls;
    return false;
  }
  bool prepare_wait() noexcept override { return false; }
  std::size_t polls = 0;
};

class self_destroyer final : public poller {
 public:
  explicit self_destroyer(std::unique_ptr<self_destroyer>& self) : self_{self} {}
  bool poll() noexcept override {
    self_.reset();
    return true;
  }
  bool prepare_wait() noexcept override { return true; }

 private:
  std::unique_ptr<self_destroyer>& self_;
};

/// Something comes between its last look and its arming, a given number of times.
class racer final : public poller {
 public:
  racer(event& e, int races) : event_{e}, races_{races} {}
  bool poll() noexcept override {
    if (!std::exchange(came_, false)) return false;
    if (--races_ == 0) event_.set();
    return true;
  }
  bool prepare_wait() noexcept override { return !(came_ = true); }

 private:
  event& event_;
  int races_;
  bool came_ = false;
};

}  // namespace

TEST_CASE("a busy executor sees timers, descriptors and posts, and never blocks", "[io]") {
  executor exec;
  spinner busy;
  exec.add(busy);
  exec.run(exec.sleep_for(2ms));

  unique_fd fd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  std::thread other{[&] { exec.post([&] { ::eventfd_write(fd.get(), 1); }); }};
  exec.run(readable(exec, fd.get()));
  other.join();

  CHECK(exec.counters().waits == 0);
  CHECK(busy.polls > 0);
}

TEST_CASE("what comes while a poller arms is seen without a wait", "[io][E1]") {
  executor exec;
  event all;
  racer races{all, 1000};
  exec.add(races);
  exec.run(all.wait());
  CHECK(exec.counters().waits == 0);
}

TEST_CASE("a poller may be destroyed in its own poll, and the others are still asked", "[io]") {
  executor exec;
  spinner first, last;
  std::unique_ptr<self_destroyer> middle;
  middle = std::make_unique<self_destroyer>(middle);
  exec.add(first);
  exec.add(*middle);
  exec.add(last);
  exec.run(exec.sleep_for(1us));
  CHECK(middle == nullptr);
  CHECK(first.polls == last.polls);
}

TEST_CASE("sleeping and waiting for a descriptor allocate nothing once warm", "[io]") {
  if (!support::counts_allocations()) return;
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
  const std::uint64_t before = support::thread_allocation_count();
  exec.run(body(exec, fd.get(), 10'000));
  CHECK(support::thread_allocation_count() == before);
}
