#include <cordma/coro/when_all.hpp>

#include "support/manual_executor.hpp"
#include "support/stack_span.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using support::manual_executor;

static_assert(operation<detail::when_any_op<event::wait_op, task<int>&>>);
static_assert(
    std::is_nothrow_move_constructible_v<detail::when_any_op<event::wait_op, detail::sleep_op>>);

namespace {

task<std::string> name_after(duration length, std::string name) {
  co_await sleep_for(length);
  co_return name;
}
task<> ends_slowly(event& never, cordma::scheduler& scheduler, bool& ended) {
  static_cast<void>(co_await as_result(never.wait()));
  // A waiter of its own, without a token: its stop has been asked for already.
  struct pause : operation_base<pause>, timer {
    using value_type = void;
    explicit pause(cordma::scheduler& s) noexcept : timer{&fire}, scheduler{s} {}
    bool start(waiter& w, const environment&) {
      next = &w;
      scheduler.arm(*this, scheduler.after(1ms));
      return false;
    }
    [[nodiscard]] bool failed() const noexcept { return false; }
    void take() noexcept {}
    result<void> take_result() noexcept { return {}; }
    static void fire(timer& self) noexcept {
      auto& p = static_cast<pause&>(self);
      p.scheduler.schedule(*p.next);
    }
    cordma::scheduler& scheduler;
    waiter* next = nullptr;
  };
  co_await pause{scheduler};
  ended = true;
}

}  // namespace

TEST_CASE("when_any says who was first, and gives what it gave", "[coro]") {
  manual_executor executor;
  auto first = executor.run(when_any(sleep_for(5ms), name_after(2ms, "task"), sleep_for(3ms)));
  REQUIRE(first.index() == 1);
  CHECK(std::get<1>(first) == "task");
  CHECK(executor.clock.now() == time_point{2ms});
}

TEST_CASE("when_any stops the losers and waits for them", "[coro]") {
  manual_executor executor;
  event never;
  bool ended = false;
  CHECK(executor.run(when_any(ends_slowly(never, executor.scheduler, ended), sleep_for(1ms)))
            .index() == 1);
  CHECK(ended);
  CHECK(executor.clock.now() == time_point{2ms});
}

TEST_CASE("when the first fails, when_any throws its error", "[coro]") {
  manual_executor executor;
  const auto fail = []() -> task<> {
    co_await sleep_for(1ms);
    throw error{{.code = errc::refused}};
  };
  CHECK(executor.run(as_result(when_any(fail(), sleep_for(2ms)))).failure().code == errc::refused);
  CHECK(executor.run(when_any(fail(), sleep_for(0ms))).index() == 1);
}

TEST_CASE("a stop of when_any ends all in cancelled", "[coro]") {
  manual_executor executor;
  event never;
  support::started any{executor.scheduler,
                       when_any(never.wait(), when_any(never.wait(), sleep_for(1h)))};
  executor.settle();
  any.request_stop();
  executor.settle();
  REQUIRE(any.has_ended());
  CHECK((*any).failed());
  CHECK((*any).take_result().is_cancelled());
  CHECK(executor.scheduler.next_deadline() == time_point::max());
}

TEST_CASE("when_any in a loop keeps the stack, whoever ends at once", "[coro]") {
  manual_executor executor;
  support::stack_span span;
  event set;
  set.set();
  const auto one = [](support::stack_span& s) -> task<> {
    s.mark();
    co_return;
  };
  const auto loop = [&]() -> task<> {
    for (int n = 0; n < 100'000; ++n) co_await when_any(one(span), set.wait());
  };
  executor.run(loop());
  CHECK(span.bytes() < support::stack_span_max);
}
