#include <cordma/coro/semaphore.hpp>

#include "support/allocations.hpp"
#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"
#include "support/skip.hpp"
#include "support/stack_span.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <optional>
#include <random>
#include <vector>

using namespace cordma;
using support::manual_executor;

static_assert(operation<semaphore::acquire_op>);
static_assert(std::is_nothrow_move_constructible_v<semaphore::acquire_op>);

namespace {

using started_acquire = support::started<semaphore::acquire_op>;

task<> hand_over(semaphore& from, semaphore& to, int count, support::stack_span& span) {
  for (int n = 0; n < count; ++n) {
    co_await from.acquire();
    span.mark();
    to.release();
  }
}

void play(manual_executor& executor, int count, support::stack_span& span) {
  semaphore a{1}, b{0};
  scope s{executor.scheduler};
  s.spawn(hand_over(a, b, count, span));
  s.spawn(hand_over(b, a, count, span));
  executor.run(s.join());
}

}  // namespace

TEST_CASE("permits go round in FIFO order, and many are not overtaken by few", "[coro]") {
  manual_executor executor;
  semaphore s{1};
  started_acquire many{executor.scheduler, s.acquire(3)}, few{executor.scheduler, s.acquire()};
  CHECK_FALSE(s.try_acquire());
  s.release();
  executor.settle();
  CHECK_FALSE(few.has_ended());
  s.release(2);
  executor.settle();
  CHECK(many.has_ended());
  CHECK(few.has_ended());
  CHECK(s.available() == 0);
}

TEST_CASE("stopping who asks for too many lets the next ones through", "[coro]") {
  manual_executor executor;
  semaphore s{1};
  started_acquire many{executor.scheduler, s.acquire(3)}, few{executor.scheduler, s.acquire()};
  many.request_stop();
  executor.settle();
  CHECK(many->take_result().is_cancelled());
  REQUIRE(few.has_ended());
  CHECK(few->take_result().has_value());
}

TEST_CASE("abandoning who asks for too many returns nothing it did not have", "[coro]") {
  manual_executor executor;
  semaphore s{1};
  {
    started_acquire many{executor.scheduler, s.acquire(3)};
  }
  CHECK(s.available() == 1);
}

TEST_CASE("a permit that was granted and not taken goes to the next", "[coro]") {
  manual_executor executor;
  semaphore s{0};
  std::optional<started_acquire> first{std::in_place, executor.scheduler, s.acquire()};
  started_acquire second{executor.scheduler, s.acquire()};
  s.release();
  first->request_stop();  // Too late: it has been granted.
  first.reset();
  executor.settle();
  CHECK(second.has_ended());
  second->take();
  CHECK(s.available() == 0);
}

TEST_CASE("closing ends who waits with the reason, and leaves the permits there are", "[coro]") {
  manual_executor executor;
  semaphore s{1};
  started_acquire waiting{executor.scheduler, s.acquire(2)};
  s.close({.code = errc::disconnected});
  executor.settle();
  REQUIRE(waiting.has_ended());
  CHECK(waiting->failed());
  CHECK(waiting->take_result().failure().code == errc::disconnected);
  CHECK_NOTHROW(executor.run(s.acquire()));
  CHECK_THROWS_AS(executor.run(s.acquire()), error);
}

TEST_CASE("foreign coroutines hand permits to one another, and may destroy who waits", "[coro]") {
  semaphore s{0};
  std::vector<int> order;
  std::optional<support::foreign_task> third;
  const auto foreign = [&](int number) -> support::foreign_task {
    co_await s.acquire();
    order.push_back(number);
    if (number == 1) third.reset();
    s.release();
  };
  const support::foreign_task first = foreign(1), second = foreign(2);
  third.emplace(foreign(3));
  const support::foreign_task fourth = foreign(4);
  s.release(3);
  // The third's permit goes to the fourth as the third is destroyed, before the second resumes.
  CHECK(order == std::vector{1, 4, 2});
  CHECK(s.available() == 3);
}

TEST_CASE("a foreign coroutine may destroy the semaphore that woke it", "[coro]") {
  auto s = std::make_unique<semaphore>(0);
  const auto foreign = [&](bool closes) -> support::foreign_task {
    const result<void> outcome = co_await as_result(s->acquire());
    CHECK(outcome.has_value() != closes);
    s.reset();
  };
  const support::foreign_task a = foreign(false);
  s->release();
  CHECK(s == nullptr);
  s = std::make_unique<semaphore>(0);
  const support::foreign_task b = foreign(true);
  s->close({.code = errc::closed});
  CHECK(s == nullptr);
  CHECK(b.done());
}

TEST_CASE("a permit is not lost when its waiter is stopped by the one resumed before it",
          "[coro]") {
  semaphore s{0};
  stop_source stop;
  const auto foreign = [&]() -> support::foreign_task {
    co_await s.acquire();
    stop.request_stop();
  };
  const support::foreign_task first = foreign();
  detail::end_flag flag;
  auto second = s.acquire();
  REQUIRE_FALSE(second.start(flag, {nullptr, stop}));
  s.release(2);
  CHECK(flag.is_set());
  CHECK_FALSE(second.failed());
  second.take();
  CHECK(s.available() == 0);
}

TEST_CASE("10^5 hand-overs do not grow the stack, with a scheduler and without", "[coro]") {
  manual_executor executor;
  support::stack_span span;
  play(executor, 100'000, span);
  CHECK(span.bytes() < support::stack_span_max);

  support::stack_span foreign_span;
  semaphore a{0}, b{0};
  const auto foreign = [&](semaphore& from, semaphore& to) -> support::foreign_task {
    co_await hand_over(from, to, 100'000, foreign_span);
  };
  const support::foreign_task x = foreign(a, b), y = foreign(b, a);
  a.release();
  CHECK(x.done());
  CHECK(y.done());
  CHECK(foreign_span.bytes() < 2 * support::stack_span_max);
}

TEST_CASE("no permit is lost or made through 10^5 random steps", "[coro]") {
  std::mt19937 random{11};
  manual_executor executor;
  constexpr std::size_t total = 5;
  semaphore s{total};
  std::vector<std::unique_ptr<started_acquire>> waiting;
  std::vector<std::size_t> wanted;
  std::size_t held = 0;
  const auto drop = [&](std::size_t n) {
    waiting.erase(waiting.begin() + std::ptrdiff_t(n));
    wanted.erase(wanted.begin() + std::ptrdiff_t(n));
  };
  for (int step = 0; step < 100'000; ++step) {
    const std::size_t n = waiting.empty() ? 0 : random() % waiting.size();
    switch (random() % 6) {
      case 0:
      case 1:
        if (waiting.size() == 20) break;
        wanted.push_back(1 + random() % total);
        waiting.push_back(
            std::make_unique<started_acquire>(executor.scheduler, s.acquire(wanted.back())));
        break;
      case 2:
        if (held == 0) break;
        --held;
        s.release();
        break;
      case 3:
        if (!waiting.empty()) waiting[n]->request_stop();
        break;
      case 4:
        if (!waiting.empty()) drop(n);  // Wherever it is: waiting, granted, stopped.
        break;
      default:
        executor.scheduler.run_ready();
        for (std::size_t m = waiting.size(); m-- > 0;) {
          if (!waiting[m]->has_ended()) continue;
          if ((**waiting[m]).take_result().has_value()) held += wanted[m];
          drop(m);
        }
    }
    REQUIRE(s.available() + held <= total);
  }
  waiting.clear();
  CHECK(s.available() + held == total);
}

TEST_CASE("losers of when_any give their permits back", "[coro]") {
  manual_executor executor;
  semaphore a{0}, b{0};
  {
    support::started racing{executor.scheduler, when_any(a.acquire(), b.acquire())};
    a.release();
    b.release();
    executor.settle();
    REQUIRE(racing.has_ended());
    CHECK((*racing).take().index() == 0);
  }
  CHECK(a.available() == 0);
  CHECK(b.available() == 1);
}

TEST_CASE("handing permits over makes no malloc once warm", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  manual_executor executor;
  support::stack_span span;
  play(executor, 10, span);
  const auto before = support::allocation_count();
  play(executor, 10'000, span);
  CHECK(support::allocation_count() == before);
}
