#include <cordma/coro/operation.hpp>

#include "support/manual_executor.hpp"

#include <cordma/coro/channel.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/scope.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <random>
#include <stdexcept>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using support::manual_executor;

static_assert(operation<detail::as_result_op<task<int>>> && operation<detail::environment_op>);
static_assert(std::is_nothrow_move_constructible_v<detail::as_result_op<event::wait_op>>);

TEST_CASE("as_result tells values, failures and stops apart, and passes on the rest", "[coro]") {
  const auto give = []() -> task<int> { co_return 3; };
  const auto fail = [](std::exception_ptr what) -> task<int> {
    std::rethrow_exception(what);
    co_return 0;
  };
  CHECK(*sync_wait(as_result(give())) == 3);
  CHECK(sync_wait(as_result(fail(std::make_exception_ptr(error{{.code = errc::closed}}))))
            .failure()
            .code == errc::closed);
  CHECK(sync_wait(as_result(fail(std::make_exception_ptr(cancelled{})))).is_cancelled());
  CHECK_THROWS_WITH(
      sync_wait(as_result(fail(std::make_exception_ptr(std::runtime_error{"foreign"})))),
      "foreign");
  auto kept = give();
  CHECK(*sync_wait(as_result(kept)) == 3);
}

TEST_CASE("a task sees its scheduler and its stop token", "[coro]") {
  manual_executor executor;
  const auto inspect = []() -> task<scheduler*> {
    co_return (co_await current_environment()).scheduler;
  };
  CHECK(executor.run(inspect()) == &executor.scheduler);
}

TEST_CASE("what an operation and its waiting cost in bytes keeps to a budget", "[coro]") {
  CHECK(sizeof(event::wait_op) <= 80);
  CHECK(sizeof(semaphore::acquire_op) <= 88);
  CHECK(sizeof(detail::sleep_op) <= 144);
  CHECK(sizeof(channel<int>::receive_op) <= 96);
  CHECK(sizeof(detail::with_timeout_op<event::wait_op>) <= 248);
  CHECK(sizeof(detail::when_any_op<event::wait_op, event::wait_op>) <= 320);
  CHECK(sizeof(operation_awaiter<detail::sleep_op>) <= 56);
  CHECK(sizeof(task<>::promise_type) <= 48);
}

TEST_CASE("a frame whose operations wake one another as they are destroyed goes in peace",
          "[coro]") {
  manual_executor executor;
  semaphore s{0};
  // Destroying `b` gives its permit to `a`, whose waiter is gone already.
  const auto by_reference = [](semaphore& from) -> task<> {
    auto a = from.acquire();
    auto b = from.acquire();
    co_await when_any(b, a);
  };
  const auto in_place = [](semaphore& from) -> task<> {
    co_await when_any(from.acquire(), from.acquire(), from.acquire());
  };
  {
    const support::started first{executor.scheduler, by_reference(s)};
    s.release();
  }
  CHECK_FALSE(executor.scheduler.has_ready());
  CHECK(s.available() == 1);
  CHECK(s.try_acquire());
  {
    const support::started second{executor.scheduler, in_place(s)};
    s.release();
  }
  CHECK_FALSE(executor.scheduler.has_ready());
  CHECK(s.available() == 1);
}

namespace {

/// The objects that the tasks of a campaign wait for, and the number of frames that are alive.
struct world {
  manual_executor executor;
  event bell;
  semaphore permits{2};
  channel<int> items{2};
  int alive = 0;
  std::mt19937 random;
};

struct counted {
  explicit counted(world& w) noexcept : of{w} { ++of.alive; }
  counted(const counted&) = delete;
  ~counted() { --of.alive; }
  world& of;
};

task<> wander(world& w, int depth);

task<> wander_once(world& w, int depth) {
  const counted here{w};
  switch (w.random() % (depth > 0 ? 9u : 5u)) {
    case 0: co_await w.bell.wait(); break;
    case 1: co_await sleep_for(duration{w.random() % 4}); break;
    case 2: co_await w.items.send(1); break;
    case 3: static_cast<void>(co_await w.items.receive()); break;
    case 4: co_await with_timeout(w.bell.wait(), duration{w.random() % 4}); break;
    case 5: co_await when_all(wander(w, depth - 1), wander(w, depth - 1), w.bell.wait()); break;
    case 6: {
      const auto first =
          co_await when_any(wander(w, depth - 1), w.items.receive(), w.permits.acquire());
      if (first.index() == 2) w.permits.release();
      break;
    }
    case 7: co_await with_timeout(wander(w, depth - 1), duration{w.random() % 4}); break;
    default: co_await wander(w, depth - 1);
  }
}

task<> wander(world& w, int depth) {
  const counted here{w};
  for (int n = 0; n < 4; ++n) {
    const auto outcome = co_await as_result(wander_once(w, depth));
    if (outcome.is_cancelled()) throw cancelled{};
  }
}

}  // namespace

TEST_CASE("frames destroyed or stopped wherever they are leave nothing behind", "[coro]") {
  for (unsigned seed = 0; seed < 20; ++seed) {
    world w;
    w.random.seed(seed);
    std::vector<std::unique_ptr<support::started<task<>>>> running(8);
    for (int step = 0; step < 2'000; ++step) {
      auto& one = running[w.random() % running.size()];
      switch (w.random() % 12) {
        case 0: one.reset(); break;
        case 1:
          if (one) one->request_stop();
          break;
        case 2:
        case 3:
          one = std::make_unique<support::started<task<>>>(w.executor.scheduler, wander(w, 3));
          break;
        case 4:
          w.bell.set();
          w.bell.reset();
          break;
        case 5: w.executor.clock.advance(1ns); break;
        case 6: w.executor.scheduler.fire_due(); break;
        case 7: static_cast<void>(w.items.try_receive()); break;
        case 8: static_cast<void>(w.items.try_send(2)); break;
        default: w.executor.scheduler.run_ready();
      }
    }
    running.clear();
    CHECK(w.alive == 0);
    CHECK_FALSE(w.executor.scheduler.has_ready());
    CHECK(w.executor.scheduler.next_deadline() == time_point::max());
    w.bell.set();
    while (w.items.try_receive()) {
    }
    CHECK(w.items.size() == 0);
    CHECK(w.permits.available() == 2);
  }
}
