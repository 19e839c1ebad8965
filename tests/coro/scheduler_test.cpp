#include <cordma/coro/scheduler.hpp>

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/ready_at_once.hpp"
#include "support/skip.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <time.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

struct test_timer : timer {
  test_timer(int n, std::vector<int>& fired) noexcept : timer{&ring}, number{n}, log{&fired} {}
  static void ring(timer& self) noexcept {
    auto& a = static_cast<test_timer&>(self);
    a.log->push_back(a.number);
  }
  int number;
  std::vector<int>* log;
};

struct counter : waiter {
  counter(cordma::scheduler& s, int& calls) noexcept : waiter{&count}, scheduler{s}, seen{calls} {}
  static std::coroutine_handle<> count(waiter& self) noexcept {
    auto& c = static_cast<counter&>(self);
    ++c.seen;
    if (c.again) c.scheduler.schedule(c);
    return std::noop_coroutine();
  }
  cordma::scheduler& scheduler;
  int& seen;
  bool again = false;
};

}  // namespace

namespace {

/// Asks to be told of the turn's end while others follow.
struct iteration_watch : waiter, detail::iteration_end_hook {
  iteration_watch(cordma::scheduler& s, std::vector<char>& l) noexcept
      : waiter{&go_on}, scheduler{s}, log{l} {}
  static std::coroutine_handle<> go_on(waiter& self) noexcept {
    auto& w = static_cast<iteration_watch&>(self);
    w.log.push_back(w.scheduler.more_ready() ? 'f' : 'l');
    if (w.scheduler.more_ready()) w.scheduler.at_iteration_end(w);
    if (w.takes_out != nullptr) w.takes_out->list_hook<waiter>::unlink();
    return std::noop_coroutine();
  }
  void on_iteration_end() noexcept override { log.push_back('e'); }
  cordma::scheduler& scheduler;
  std::vector<char>& log;
  waiter* takes_out = nullptr;
};

}  // namespace

TEST_CASE("who runs knows whether others follow in the turn, and can be told of its end",
          "[coro]") {
  cordma::scheduler scheduler;
  std::vector<char> log;
  iteration_watch first{scheduler, log}, second{scheduler, log}, last{scheduler, log};
  for (iteration_watch* each : {&first, &second, &last}) scheduler.schedule(*each);
  CHECK(scheduler.run_ready() == 3);
  CHECK(log == std::vector{'f', 'f', 'l', 'e', 'e'});
  CHECK_FALSE(scheduler.more_ready());

  // The last is taken out by the one before it.
  log.clear();
  second.takes_out = &last;
  scheduler.schedule(second);
  scheduler.schedule(last);
  CHECK(scheduler.run_ready() == 1);
  CHECK(log == std::vector{'f', 'e'});
  CHECK_FALSE(scheduler.more_ready());

  // A waiter that is alone, and asks no longer, hears nothing more.
  log.clear();
  scheduler.schedule(first);
  CHECK(scheduler.run_ready() == 1);
  CHECK(log == std::vector{'l'});
}

TEST_CASE("what becomes ready while others run waits for the next turn", "[coro]") {
  cordma::scheduler scheduler;
  int calls = 0;
  counter one{scheduler, calls};
  one.again = true;
  scheduler.schedule(one);
  CHECK(scheduler.run_ready() == 1);
  CHECK(scheduler.has_ready());
  one.again = false;
  CHECK(scheduler.run_ready() == 1);
  CHECK(scheduler.run_ready() == 0);
  CHECK(calls == 2);
}

TEST_CASE("what is put off to the last runs behind all that was ready, in the same turn",
          "[coro]") {
  struct noted : waiter {
    noted(int n, std::vector<int>& order) noexcept : waiter{&note}, number{n}, log{order} {}
    static std::coroutine_handle<> note(waiter& self) noexcept {
      auto& n = static_cast<noted&>(self);
      n.log.push_back(n.number);
      if (n.puts_off != nullptr) n.scheduler->schedule_last(*n.puts_off);
      return std::noop_coroutine();
    }
    int number;
    std::vector<int>& log;
    cordma::scheduler* scheduler = nullptr;
    noted* puts_off = nullptr;
  };
  cordma::scheduler scheduler;
  std::vector<int> order;
  noted first{1, order}, second{2, order}, last{3, order};
  first.scheduler = &scheduler;
  first.puts_off = &last;
  scheduler.schedule(first);
  scheduler.schedule(second);
  CHECK(scheduler.run_ready() == 3);
  CHECK(order == std::vector<int>{1, 2, 3});
  scheduler.schedule_last(last);
  CHECK(scheduler.has_ready());
  scheduler.schedule(second);
  CHECK(scheduler.run_last() == 1);
  CHECK(order.back() == 3);
}

TEST_CASE("a waiter that is destroyed leaves the ready list", "[coro]") {
  cordma::scheduler scheduler;
  int calls = 0;
  auto one = std::make_unique<counter>(scheduler, calls);
  scheduler.schedule(*one);
  one.reset();
  CHECK_FALSE(scheduler.has_ready());
  CHECK(scheduler.run_ready() == 0);
}

TEST_CASE("timers fire in order of their deadlines, equal ones in the order they were set",
          "[coro]") {
  manual_clock clock;
  cordma::scheduler scheduler{clock};
  std::vector<int> fired;
  test_timer a{1, fired}, b{2, fired}, c{3, fired}, d{4, fired};
  scheduler.arm(a, scheduler.after(20ms));
  scheduler.arm(b, scheduler.after(10ms));
  scheduler.arm(c, scheduler.after(10ms));
  scheduler.arm(d, scheduler.after(30ms));
  CHECK(scheduler.next_deadline() == scheduler.after(10ms));
  CHECK(scheduler.fire_due() == 0);
  clock.advance(20ms);
  CHECK(scheduler.fire_due() == 3);
  CHECK(fired == std::vector{2, 3, 1});
  d.disarm();
  CHECK(scheduler.next_deadline() == time_point::max());
}

TEST_CASE("a deadline beyond what the clock can count is the end of time", "[coro]") {
  manual_clock clock;
  clock.advance(1h);
  const cordma::scheduler scheduler{clock};
  CHECK(scheduler.after(duration::max()) == time_point::max());
  CHECK(scheduler.after(duration::min()) < scheduler.now());
  CHECK(scheduler.after(-1ns) == scheduler.now() - 1ns);
  CHECK(scheduler.about_after(duration::max()) == time_point::max());
}

TEST_CASE("the exact time is asked for only when it matters", "[coro]") {
  struct dear_clock final : time_source {
    [[nodiscard]] time_point now() const noexcept override {
      ++asked;
      return time_point{1h};
    }
    [[nodiscard]] time_point about_now() const noexcept override { return time_point{1h + 4ms}; }
    mutable unsigned asked = 0;
  } clock;
  const cordma::scheduler scheduler{clock};
  CHECK(scheduler.about_after(1s) == time_point{1h + 1s + 4ms});
  CHECK_FALSE(scheduler.is_past(time_point{1h + 2s}));
  CHECK_FALSE(scheduler.is_past(time_point::max()));
  CHECK(clock.asked == 0);
  CHECK(scheduler.about_after(1s - 1ns) == time_point{1h + 1s - 1ns});
  CHECK_FALSE(scheduler.is_past(time_point{1h + 1ns}));
  CHECK(scheduler.is_past(time_point{1h}));
  CHECK(scheduler.is_past(time_point{}));
  CHECK(clock.asked == 4);
}

TEST_CASE("about now is a tick after the kernel's last one", "[coro]") {
  const auto asked = [](auto ask) {
    timespec t{};
    REQUIRE(ask(CLOCK_MONOTONIC_COARSE, &t) == 0);
    return std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds{t.tv_nsec};
  };
  const auto tick = asked(::clock_getres);
  const auto before = asked(::clock_gettime);
  const auto about = time_source::monotonic().about_now().time_since_epoch();
  CHECK(about >= before + tick);
  CHECK(about <= asked(::clock_gettime) + tick);
  CHECK(tick <= 10ms);
}

TEST_CASE("timers outlive their scheduler without reaching back, and disarm when destroyed",
          "[coro]") {
  std::vector<int> fired;
  auto scheduler = std::make_unique<cordma::scheduler>();
  test_timer a{1, fired};
  scheduler->arm(a, scheduler->now());
  {
    test_timer b{2, fired};
    scheduler->arm(b, scheduler->now());
  }
  scheduler.reset();
  CHECK_FALSE(a.is_armed());
}

TEST_CASE("the timer heap agrees with a sorted list through 10^5 random steps", "[coro]") {
  std::mt19937 random{7};
  manual_clock clock;
  cordma::scheduler scheduler{clock};
  std::vector<int> fired;
  std::deque<test_timer> alarms;
  for (int n = 0; n < 200; ++n) alarms.emplace_back(n, fired);
  struct entry {
    time_point deadline;
    int number;
  };
  const auto is_before = [](const entry& x, const entry& y) { return x.deadline < y.deadline; };
  std::vector<entry> model;  // timers in the order of arming
  for (int step = 0; step < 100'000; ++step) {
    test_timer& one = alarms[random() % alarms.size()];
    std::erase_if(model, [&](const entry& e) { return e.number == one.number; });
    if (one.is_armed() && random() % 2 == 0) {
      one.disarm();
    } else {
      const time_point deadline = scheduler.after(duration{random() % 50});
      scheduler.rearm(one, deadline);
      model.push_back({deadline, one.number});
    }
    if (random() % 4 != 0) continue;
    clock.advance(duration{random() % 10});
    std::vector<entry> due;
    for (const entry& e : model) {
      if (e.deadline > clock.now()) continue;
      due.insert(std::upper_bound(due.begin(), due.end(), e, is_before), e);
    }
    std::erase_if(model, [&](const entry& e) { return e.deadline <= clock.now(); });
    fired.clear();
    REQUIRE(scheduler.fire_due() == due.size());
    REQUIRE(std::equal(fired.begin(), fired.end(), due.begin(), due.end(),
                       [](int number, const entry& e) { return number == e.number; }));
  }
}

TEST_CASE("ten thousand timers are armed when no memory is left, and fire in order", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted here");
  constexpr int count = 10'000;
  manual_clock clock;
  cordma::scheduler scheduler{clock};
  std::vector<int> fired;
  fired.reserve(count);
  std::deque<test_timer> alarms;
  for (int n = 0; n < count; ++n) alarms.emplace_back(n, fired);
  {
    const support::no_memory none;
    for (test_timer& one : alarms) scheduler.arm(one, scheduler.after(duration{one.number}));
    clock.advance(duration{count});
    scheduler.fire_due();
  }
  CHECK(fired.size() == count);
  CHECK(std::ranges::is_sorted(fired));
}

TEST_CASE("arming a timer twice is a broken contract", "[coro]") {
  CHECK(support::run_in_child([] {
          cordma::scheduler scheduler;
          std::vector<int> fired;
          test_timer a{1, fired};
          scheduler.arm(a, scheduler.now());
          scheduler.arm(a, scheduler.now());
        }).aborted);
}

namespace {

/// A scheduler on which the test says what is completed inline.
struct inline_scheduler : scheduler {
  using scheduler::may_complete_inline;
  bool complete_inline() noexcept override {
    ++tries;
    return at_try();
  }
  std::function<bool()> at_try = [] { return true; };
  int tries = 0;
};

/// Goes on when `first` is set, as the only one of its turn, and then awaits `second`.
task<> awaits_both(event& first, event& second, int& passed) {
  co_await first.wait();
  ++passed;
  co_await second.wait();
  ++passed;
}

struct two_waits {
  two_waits() {
    CHECK_FALSE(waits.start(parent, {&scheduler, {}}));
    first.set();
  }
  inline_scheduler scheduler;
  event first{scheduler}, second{scheduler};
  int passed = 0, ended = 0;
  counter parent{scheduler, ended};
  task<> waits = awaits_both(first, second, passed);
};

/// Put off to the end of an event-loop iteration.
struct end_of_iteration : detail::iteration_end_hook {
  void on_iteration_end() noexcept override { ++calls; }
  int calls = 0;
};

}  // namespace

TEST_CASE("a coroutine that is alone in its turn goes on when what it awaits completes inline",
          "[coro]") {
  two_waits w;
  w.scheduler.at_try = [&] {
    CHECK(w.scheduler.may_complete_inline());
    w.second.set();
    CHECK_FALSE(w.scheduler.may_complete_inline());
    return true;
  };
  CHECK(w.scheduler.run_ready() == 1);
  CHECK(w.passed == 2);
  CHECK(w.ended == 1);
  CHECK(w.scheduler.tries == 1);
  CHECK_FALSE(w.scheduler.has_ready());
}

TEST_CASE("a coroutine is suspended when nothing completes inline, or when it must suspend",
          "[coro]") {
  two_waits w;
  SECTION("nothing came") {}
  SECTION("it must suspend, though what it awaits came") {
    w.scheduler.at_try = [&] {
      w.second.set();
      return false;
    };
  }
  CHECK(w.scheduler.run_ready() == 1);
  CHECK(w.scheduler.tries == 1);
  CHECK(w.passed == 1);
  w.second.set();
  w.scheduler.run_ready();
  CHECK(w.passed == 2);
}

TEST_CASE("who completes inline overtakes nobody", "[coro]") {
  two_waits w;
  int others = 0, tries = 0;
  counter other{w.scheduler, others};
  SECTION("another is made ready by the same try") {
    tries = 1;
    w.scheduler.at_try = [&] {
      w.scheduler.schedule(other);
      w.second.set();
      return true;
    };
  }
  SECTION("another is ready in the same turn") { w.scheduler.schedule(other); }
  SECTION("another is put off to the last") { w.scheduler.schedule_last(other); }
  w.scheduler.run_ready();
  CHECK(w.scheduler.tries == tries);
  CHECK(w.passed == 1);
  w.second.set();
  w.scheduler.run_ready();
  CHECK(others == 1);
  CHECK(w.passed == 2);
}

TEST_CASE("nothing more completes inline once something is put off to the end of the turn",
          "[coro]") {
  two_waits w;
  int others = 0;
  counter other{w.scheduler, others};
  end_of_iteration at_end;
  SECTION("to the last") {
    w.scheduler.at_try = [&] {
      w.scheduler.schedule_last(other);
      CHECK_FALSE(w.scheduler.may_complete_inline());
      return true;
    };
  }
  SECTION("to the very end") {
    w.scheduler.at_try = [&] {
      w.scheduler.at_iteration_end(at_end);
      CHECK_FALSE(w.scheduler.may_complete_inline());
      return true;
    };
  }
  w.scheduler.run_ready();
  CHECK(others + at_end.calls == 1);
  CHECK(w.passed == 1);
}

TEST_CASE("what is started side by side is all under way before anything completes inline",
          "[coro]") {
  inline_scheduler scheduler;
  event first{scheduler}, second{scheduler};
  int passed = 0, ended = 0;
  counter parent{scheduler, ended};
  const auto body = [&]() -> task<> {
    co_await first.wait();
    co_await when_all(second.wait(), awaits_both(second, second, passed));
  };
  task<> waits = body();
  CHECK_FALSE(waits.start(parent, {&scheduler, {}}));
  first.set();
  scheduler.run_ready();
  CHECK(scheduler.tries == 0);
  second.set();
  while (scheduler.run_ready() > 0) {
  }
  CHECK(passed == 2);
  CHECK(ended == 1);
}

TEST_CASE("what is ready at once is awaited inline only where the scheduler's hook says so",
          "[coro]") {
  const auto awaits_three = [](int& passed) -> task<> {
    for (; passed < 3; ++passed) co_await support::ready_at_once{};
  };
  inline_scheduler hooked;
  cordma::scheduler plain;
  const auto passed_in_one_iteration = [&](cordma::scheduler& on) {
    int ended = 0, passed = 0;
    counter parent{on, ended};
    task<> waits = awaits_three(passed);
    CHECK_FALSE(waits.start(parent, {&on, {}}));
    CHECK(on.run_ready() == 1);
    const int so_far = passed;
    while (on.run_ready() > 0) {
    }
    CHECK(ended == 1);
    return so_far;
  };
  CHECK(passed_in_one_iteration(plain) == 1);
  CHECK(passed_in_one_iteration(hooked) == 3);
}
