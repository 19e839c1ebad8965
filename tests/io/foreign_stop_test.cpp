// A stop that another thread requests of a coroutine of another library, whose wait belongs to an
// executor.
#include <cordma/foreign_promise.hpp>

#include "support/aborts.hpp"
#include "support/foreign_promises.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/io/wait_until.hpp>

#include <catch2/catch.hpp>

#include <optional>
#include <stop_token>
#include <thread>

using namespace cordma;
using support::end;
using support::foreign;

TEMPLATE_TEST_CASE("a stop by another thread ends the wait on the executor's thread", "[io]",
                   support::gives_std_token, support::gives_environment) {
  executor ex;
  event never{ex};
  std::optional<std::thread::id> went_on;
  const auto body = [&](std::stop_token) -> foreign<TestType> {
    const result<void> outcome = co_await as_result(never.wait());
    CHECK(outcome.is_cancelled());
    went_on = std::this_thread::get_id();
    co_await never.wait();
  };
  std::stop_source source;
  const auto running = body(source.get_token());
  const std::jthread other{[&] { source.request_stop(); }};
  ex.run(wait_until(ex, [&] { return running.done(); }));
  CHECK(went_on == std::this_thread::get_id());
  CHECK(running.ended() == TestType::on_stop);
}

TEMPLATE_TEST_CASE("a stop by another thread and the end of the wait may come at once", "[io]",
                   support::gives_std_token, support::gives_environment) {
  executor ex;
  int returned = 0, stopped = 0;
  for (int round = 0; round < 200; ++round) {
    event set{ex};
    const auto body = [&](std::stop_token) -> foreign<TestType> { co_await set.wait(); };
    std::stop_source source;
    const auto running = body(source.get_token());
    const std::jthread other{[&] { source.request_stop(); }};
    ex.post([&] { set.set(); });
    ex.run(wait_until(ex, [&] { return running.done(); }));
    ++(running.ended() == end::returned ? returned : stopped);
    CHECK((running.ended() == end::returned || running.ended() == TestType::on_stop));
  }
  CHECK(returned + stopped == 200);
}

TEMPLATE_TEST_CASE("a coroutine may be destroyed while another thread requests its stop", "[io]",
                   support::gives_std_token, support::gives_environment) {
  executor ex;
  for (int round = 0; round < 200; ++round) {
    event never{ex};
    const auto body = [&](std::stop_token) -> foreign<TestType> { co_await never.wait(); };
    std::stop_source source;
    std::optional<foreign<TestType>> running{body(source.get_token())};
    const std::jthread other{[&] { source.request_stop(); }};
    running.reset();
  }
  // The stops that came in time find nothing to stop.
  ex.run([]() -> task<> { co_return; }());
}

TEMPLATE_TEST_CASE("a stop by another thread ends a task on the thread of the executor that ran",
                   "[io]", support::gives_std_token, support::gives_environment) {
  executor ex;
  event never;
  std::optional<std::thread::id> ended_on;
  const auto inner = [&]() -> task<> {
    const result<void> outcome = co_await as_result(never.wait());
    CHECK(outcome.is_cancelled());
    ended_on = std::this_thread::get_id();
    co_await never.wait();
  };
  const auto body = [&](std::stop_token) -> foreign<TestType> { co_await inner(); };
  std::stop_source source;
  std::optional<foreign<TestType>> running;
  std::jthread other;
  ex.post([&] {
    running.emplace(body(source.get_token()));
    other = std::jthread{[&] { source.request_stop(); }};
  });
  ex.run(wait_until(ex, [&] { return running && running->done(); }));
  CHECK(ended_on == std::this_thread::get_id());
  CHECK(running->ended() == TestType::on_stop);
}

TEST_CASE("the thread's scheduler is the innermost executor that runs", "[io]") {
  CHECK(scheduler::of_this_thread() == nullptr);
  executor outer, inner;
  outer.run([](executor& out, executor& in) -> task<> {
    CHECK(scheduler::of_this_thread() == &out);
    in.run([](executor& nested) -> task<> {
      CHECK(scheduler::of_this_thread() == &nested);
      co_return;
    }(in));
    CHECK(scheduler::of_this_thread() == &out);
    co_return;
  }(outer, inner));
  CHECK(scheduler::of_this_thread() == nullptr);
}

TEST_CASE("a stop by another thread aborts where no executor could pass it on", "[io]") {
  CHECK(support::run_in_child([] {
          event never;
          const auto body = [&](std::stop_token) -> foreign<support::gives_std_token> {
            co_await never.wait();
          };
          std::stop_source source;
          const auto running = body(source.get_token());
          std::jthread{[&] { source.request_stop(); }}.join();
        }).aborted);
}
