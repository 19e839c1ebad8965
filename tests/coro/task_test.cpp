#include <cordma/coro/task.hpp>

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"
#include "support/skip.hpp"
#include "support/stack_span.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <stdexcept>

using namespace cordma;
using support::manual_executor;

static_assert(!std::is_copy_constructible_v<task<>>);
static_assert(std::is_nothrow_move_constructible_v<task<int>>);
static_assert(operation<task<>> && operation<task<int>> && operation<task<int>&>);

namespace {

struct counted_local {
  explicit counted_local(int& alive) noexcept : alive_{&alive} { ++*alive_; }
  counted_local(const counted_local&) = delete;
  ~counted_local() { --*alive_; }
  int* alive_;
};

task<int> give(int value) { co_return value; }
task<> nothing() { co_return; }
task<std::unique_ptr<int>> give_owner() { co_return std::make_unique<int>(5); }
task<> fail_with(std::exception_ptr what) {
  std::rethrow_exception(what);
  co_return;
}
task<> hold(int& alive, event& until) {
  const counted_local local{alive};
  co_await until.wait();
}
task<> hold_deep(int depth, int& alive, event& until) {
  const counted_local local{alive};
  if (depth == 0) {
    co_await until.wait();
  } else {
    co_await hold_deep(depth - 1, alive, until);
  }
}

}  // namespace

TEST_CASE("a task does not start until it is awaited", "[coro]") {
  bool ran = false;
  const auto body = [](bool& flag) -> task<> {
    flag = true;
    co_return;
  };
  task<> t = body(ran);
  CHECK_FALSE(ran);
  sync_wait(std::move(t));
  CHECK(ran);
}

TEST_CASE("a task gives values, owners and references into its caller", "[coro]") {
  CHECK(sync_wait(give(7)) == 7);
  CHECK(*sync_wait(give_owner()) == 5);
  const auto pair = []() -> task<std::pair<int, int>> { co_return {1, 2}; };
  CHECK(sync_wait(pair()) == std::pair{1, 2});
}

TEST_CASE("exceptions pass through tasks, ours and others", "[coro]") {
  const auto outer = [](std::exception_ptr what) -> task<> { co_await fail_with(what); };
  CHECK_THROWS_AS(sync_wait(outer(std::make_exception_ptr(error{{.code = errc::closed}}))), error);
  CHECK_THROWS_AS(sync_wait(outer(std::make_exception_ptr(cancelled{}))), cancelled);
  CHECK_THROWS_WITH(sync_wait(outer(std::make_exception_ptr(std::runtime_error{"boom"}))), "boom");
}

TEST_CASE("a task that is destroyed before it is awaited runs nothing", "[coro]") {
  int alive = 0;
  event never;
  {
    auto t = hold(alive, never);
  }
  CHECK(alive == 0);
}

TEST_CASE("a task that is destroyed while it is suspended destroys its locals", "[coro]") {
  int alive = 0;
  event never;
  manual_executor executor;
  {
    support::started outer{executor.scheduler, hold_deep(10, alive, never)};
    CHECK(alive == 11);
  }
  CHECK(alive == 0);
  never.set();  // The event holds no waiter that dangles.
}

TEST_CASE("a task that is moved into destroys what it held", "[coro]") {
  int alive = 0;
  event never;
  manual_executor executor;
  task<> t = hold(alive, never);
  detail::end_flag flag;
  static_cast<void>(t.start(flag, {&executor.scheduler, {}}));
  CHECK(alive == 1);
  t = nothing();
  CHECK(alive == 0);
  t = std::move(*&t);
  sync_wait(t);
}

TEST_CASE("a task that is ready to go on can be destroyed", "[coro]") {
  int alive = 0;
  event go;
  manual_executor executor;
  {
    support::started outer{executor.scheduler, hold_deep(3, alive, go)};
    go.set();
    CHECK(executor.scheduler.has_ready());
  }
  CHECK(alive == 0);
  CHECK_FALSE(executor.scheduler.has_ready());
}

TEST_CASE("awaiting 10^6 tasks that end at once does not grow the stack", "[coro]") {
  support::stack_span span;
  const auto one = [](support::stack_span& s) -> task<int> {
    s.mark();
    co_return 1;
  };
  const auto loop = [&one](support::stack_span& s) -> task<int> {
    int sum = 0;
    for (int n = 0; n < 1'000'000; ++n) sum += co_await one(s);
    co_return sum;
  };
  CHECK(sync_wait(loop(span)) == 1'000'000);
  CHECK(span.bytes() < support::stack_span_max);
}

TEST_CASE("tasks that end at once inside combinators do not grow the stack", "[coro]") {
  support::stack_span span;
  const auto one = [](support::stack_span& s) -> task<int> {
    s.mark();
    co_return 1;
  };
  const auto loop = [&one](support::stack_span& s) -> task<> {
    for (int n = 0; n < 100'000; ++n) {
      static_cast<void>(co_await as_result(one(s)));
      static_cast<void>(co_await when_all(one(s), as_result(one(s))));
    }
  };
  sync_wait(loop(span));
  CHECK(span.bytes() < support::stack_span_max);
}

TEST_CASE("a foreign coroutine awaits tasks, which have no stop and no scheduler then", "[coro]") {
  manual_executor executor;
  const auto inspect = []() -> task<bool> {
    const environment env = co_await current_environment();
    co_return env.scheduler == nullptr && !env.stop.stop_possible();
  };
  bool empty = false;
  const auto foreign = [&]() -> support::foreign_task {
    empty = co_await inspect();
    const int value = co_await give(3);
    CHECK(value == 3);
  };
  const support::foreign_task f = foreign();
  f.rethrow();
  CHECK(f.done());
  CHECK(empty);
}

TEST_CASE("awaiting a task twice is a broken contract", "[coro]") {
  CHECK(support::run_in_child([] {
          task<int> t = give(1);
          sync_wait(t);
          sync_wait(t);
        }).aborted);
  CHECK(support::run_in_child([] {
          event never;
          detail::end_flag flag;
          int alive = 0;
          task<> t = hold(alive, never);
          static_cast<void>(t.start(flag, {}));
          static_cast<void>(t.start(flag, {}));
        }).aborted);
  CHECK(support::run_in_child([] {
          task<> t = nothing();
          const task<> other = std::move(t);
          sync_wait(t);
        }).aborted);
}

TEST_CASE("awaiting tasks makes no malloc once warm", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  const auto loop = [](int count) -> task<> {
    for (int n = 0; n < count; ++n) static_cast<void>(co_await give(n));
  };
  sync_wait(loop(10));
  const auto before = support::allocation_count();
  sync_wait(loop(10'000));
  CHECK(support::allocation_count() == before);
}
