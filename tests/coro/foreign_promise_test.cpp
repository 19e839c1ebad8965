// Coroutines of other libraries, by what their promises give: nothing, a std::stop_token alone, and
// an environment of P2300 with `unhandled_stopped`.
#include <cordma/foreign_promise.hpp>

#include "support/allocations.hpp"
#include "support/foreign_promises.hpp"
#include "support/manual_executor.hpp"
#include "support/skip.hpp"

#include <cordma/coro/channel.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/scope.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using support::end;
using support::foreign;
using support::manual_executor;

#define EACH_PROMISE support::gives_nothing, support::gives_std_token, support::gives_environment
#define EACH_STOPPABLE support::gives_std_token, support::gives_environment

namespace {

task<std::string> text_after(event& e) {
  co_await e.wait();
  co_return "came";
}
task<> fail_after(event& e, std::exception_ptr why) {
  co_await e.wait();
  std::rethrow_exception(why);
}

}  // namespace

TEMPLATE_TEST_CASE("each kind of operation works in a coroutine of another library", "[coro]",
                   EACH_PROMISE) {
  manual_executor executor;
  event set{executor.scheduler}, never{executor.scheduler};
  semaphore permits{0};
  channel<int> items{1};
  scope tasks{executor.scheduler};
  tasks.spawn([](event& e) -> task<> { co_await e.wait(); }(set));
  int step = 0;
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    co_await set.wait();
    ++step;
    co_await permits.acquire();
    ++step;
    const auto item = co_await items.receive();
    CHECK(item == 7);
    ++step;
    co_await detail::sleep_op{1ms, &executor.scheduler};
    const std::string direct = co_await text_after(set);
    CHECK(direct == "came");
    auto named = text_after(set);
    const std::string moved = co_await std::move(named);
    CHECK(moved == "came");
    const auto [one, other] = co_await when_all(text_after(set), set.wait());
    CHECK(one == "came");
    const auto first = co_await when_any(never.wait(), text_after(set));
    CHECK(first.index() == 1);
    const result<void> late = co_await as_result(with_timeout(never.wait(), 1ms));
    CHECK(late.failure().code == errc::timed_out);
    co_await tasks.join();
    ++step;
  };
  const auto running = body({});
  executor.settle();
  CHECK(step == 0);
  set.set();
  executor.settle();
  CHECK(step == 1);
  permits.release();
  executor.settle();
  CHECK(step == 2);
  CHECK(items.try_send(7));
  for (int i = 0; i < 3; ++i) executor.advance(1ms);
  CHECK(step == 4);
  CHECK(running.ended() == end::returned);
}

TEMPLATE_TEST_CASE("a failure is thrown in a coroutine of another library", "[coro]",
                   EACH_PROMISE) {
  manual_executor executor;
  event set{executor.scheduler};
  const auto awaits = [&](std::stop_token, std::exception_ptr why) -> foreign<TestType> {
    co_await fail_after(set, why);
  };
  const auto refused =
      awaits({}, std::make_exception_ptr(error{{.code = errc::refused, .call = "here"}}));
  const auto other = awaits({}, std::make_exception_ptr(std::logic_error{"what"}));
  const auto sleeps = [&](std::stop_token) -> foreign<TestType> { co_await sleep_for(1ms); };
  CHECK_THROWS_AS(sleeps({}).rethrow(), error);  // The promise names no scheduler.
  set.set();
  executor.settle();
  CHECK(refused.ended() == end::threw);
  CHECK_THROWS_AS(refused.rethrow(), error);
  CHECK_THROWS_AS(other.rethrow(), std::logic_error);
}

TEMPLATE_TEST_CASE("a stop of another library ends a wait, and what a task waits for", "[coro]",
                   EACH_STOPPABLE) {
  manual_executor executor;
  event never{executor.scheduler};
  bool went_on = false;
  const auto directly = [&](std::stop_token) -> foreign<TestType> {
    co_await never.wait();
    went_on = true;
  };
  const auto by_task = [&](std::stop_token) -> foreign<TestType> {
    co_await text_after(never);
    went_on = true;
  };
  const auto as_a_result = [&](std::stop_token) -> foreign<TestType> {
    const result<void> outcome = co_await as_result(never.wait());
    CHECK(outcome.is_cancelled());
  };
  std::stop_source source;
  const auto first = directly(source.get_token());
  const auto second = by_task(source.get_token());
  const auto third = as_a_result(source.get_token());
  executor.settle();
  CHECK_FALSE((first.done() || second.done() || third.done()));
  source.request_stop();
  executor.settle();
  CHECK(first.ended() == TestType::on_stop);
  CHECK(second.ended() == TestType::on_stop);
  CHECK(third.ended() == end::returned);
  CHECK_FALSE(went_on);
  if constexpr (TestType::on_stop == end::threw) CHECK_THROWS_AS(first.rethrow(), cancelled);
}

TEMPLATE_TEST_CASE("a stop that came before the wait ends it at once", "[coro]", EACH_STOPPABLE) {
  event never;
  const auto body = [&](std::stop_token) -> foreign<TestType> { co_await never.wait(); };
  const auto by_task = [&](std::stop_token) -> foreign<TestType> { co_await text_after(never); };
  std::stop_source source;
  source.request_stop();
  CHECK(body(source.get_token()).ended() == TestType::on_stop);
  CHECK(by_task(source.get_token()).ended() == TestType::on_stop);
}

TEMPLATE_TEST_CASE("a stop that comes after the end changes nothing", "[coro]", EACH_STOPPABLE) {
  manual_executor executor;
  event set{executor.scheduler}, last{executor.scheduler};
  const auto body = [&](std::stop_token token) -> foreign<TestType> {
    co_await set.wait();
    CHECK(token.stop_requested());
    const result<void> stopped = co_await as_result(last.wait());
    CHECK(stopped.is_cancelled());
  };
  std::stop_source source;
  const auto running = body(source.get_token());
  set.set();  // The coroutine is ready, and its wait is no longer to be stopped.
  source.request_stop();
  executor.settle();
  CHECK(running.ended() == end::returned);
}

TEMPLATE_TEST_CASE("a stop where no scheduler is known ends the wait inside the request", "[coro]",
                   EACH_STOPPABLE) {
  event never;
  const auto body = [&](std::stop_token) -> foreign<TestType> { co_await never.wait(); };
  std::stop_source source;
  const auto running = body(source.get_token());
  source.request_stop();
  CHECK(running.ended() == TestType::on_stop);
}

TEMPLATE_TEST_CASE("a waiting coroutine of another library can be destroyed", "[coro]",
                   EACH_PROMISE) {
  manual_executor executor;
  event never{executor.scheduler};
  std::stop_source source;
  bool went_on = false;
  {
    const auto directly = [&](std::stop_token) -> foreign<TestType> {
      co_await never.wait();
      went_on = true;
    };
    const auto by_task = [&](std::stop_token) -> foreign<TestType> {
      co_await text_after(never);
      went_on = true;
    };
    const auto one = directly(source.get_token());
    const auto two = by_task(source.get_token());
    never.set();  // The executor has both on its list.
  }
  executor.settle();
  source.request_stop();
  executor.settle();
  CHECK_FALSE(went_on);
}

TEMPLATE_TEST_CASE("an owner may destroy what its stop has ended", "[coro]", EACH_STOPPABLE) {
  manual_executor executor;
  event never{executor.scheduler};
  bool went_on = false;
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    static_cast<void>(co_await as_result(never.wait()));
    went_on = true;
  };
  std::stop_source source;
  std::optional<foreign<TestType>> running{body(source.get_token())};
  source.request_stop();
  running.reset();
  executor.settle();
  CHECK_FALSE(went_on);
}

TEST_CASE("an environment whose library names no query stops nothing", "[coro]") {
  struct unnamed {};
  struct gives {
    explicit gives(std::stop_token) noexcept {}
    [[nodiscard]] unnamed get_env() const noexcept { return {}; }
    end ended = end::none;
  };
  event set;
  const auto body = [&](std::stop_token) -> foreign<gives> { co_await set.wait(); };
  const auto running = body({});
  set.set();
  CHECK(running.ended() == end::returned);
}

TEMPLATE_TEST_CASE("awaiting in a coroutine of another library allocates nothing once warm",
                   "[coro]", EACH_PROMISE) {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  manual_executor executor;
  event set{executor.scheduler};
  std::uint64_t allocated = 0;
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    for (int i = 0; i < 20; ++i) {
      if (i == 10) allocated = support::thread_allocation_count();
      set.reset();
      co_await set.wait();
      co_await text_after(set);
    }
    allocated = support::thread_allocation_count() - allocated;
  };
  std::stop_source source;
  const auto running = body(source.get_token());
  while (!running.done()) {
    set.set();
    executor.settle();
  }
  CHECK(allocated == 0);
}
