#include <cordma/coro/when_any.hpp>

#include "support/manual_home.hpp"
#include "support/stack_span.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/task.hpp>

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using support::manual_home;

static_assert(operation<detail::when_any_op<event::wait_op, task<int>&>>);
static_assert(
    std::is_nothrow_move_constructible_v<detail::when_any_op<event::wait_op, detail::sleep_op>>);

namespace {

task<std::string> name_after(duration length, std::string name) {
  co_await sleep_for(length);
  co_return name;
}
task<> ends_slowly(event& never, scheduler& home, bool& ended) {
  static_cast<void>(co_await as_result(never.wait()));
  // A waiter of its own, without a token: its stop has been asked for already.
  struct pause : operation_base<pause>, timer {
    using value_type = void;
    explicit pause(scheduler& s) noexcept : timer{&fire}, home{s} {}
    bool start(waiter& w, const environment&) {
      next = &w;
      home.arm(*this, home.after(1ms));
      return false;
    }
    [[nodiscard]] bool failed() const noexcept { return false; }
    void take() noexcept {}
    result<void> take_result() noexcept { return {}; }
    static void fire(timer& self) noexcept {
      auto& p = static_cast<pause&>(self);
      p.home.schedule(*p.next);
    }
    scheduler& home;
    waiter* next = nullptr;
  };
  co_await pause{home};
  ended = true;
}

}  // namespace

TEST_CASE("when_any says who was first, and gives what it gave", "[coro]") {
  manual_home home;
  auto first = home.run(when_any(sleep_for(5ms), name_after(2ms, "task"), sleep_for(3ms)));
  REQUIRE(first.index() == 1);
  CHECK(std::get<1>(first) == "task");
  CHECK(home.clock.now() == time_point{2ms});
}

TEST_CASE("when_any stops the losers and waits for them", "[coro]") {
  manual_home home;
  event never;
  bool ended = false;
  CHECK(home.run(when_any(ends_slowly(never, home.scheduler, ended), sleep_for(1ms))).index() == 1);
  CHECK(ended);
  CHECK(home.clock.now() == time_point{2ms});
}

TEST_CASE("when the first fails, when_any throws its error", "[coro]") {
  manual_home home;
  const auto fail = []() -> task<> {
    co_await sleep_for(1ms);
    throw error{{.code = errc::refused}};
  };
  CHECK(home.run(as_result(when_any(fail(), sleep_for(2ms)))).failure().code == errc::refused);
  CHECK(home.run(when_any(fail(), sleep_for(0ms))).index() == 1);
}

TEST_CASE("a stop of when_any ends all in cancelled", "[coro]") {
  manual_home home;
  event never;
  support::started any{home.scheduler,
                       when_any(never.wait(), when_any(never.wait(), sleep_for(1h)))};
  home.settle();
  any.request_stop();
  home.settle();
  REQUIRE(any.has_ended());
  CHECK((*any).failed());
  CHECK((*any).take_result().is_cancelled());
  CHECK(home.scheduler.next_deadline() == time_point::max());
}

TEST_CASE("when_any in a loop keeps the stack, whoever ends at once", "[coro]") {
  manual_home home;
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
  home.run(loop());
  CHECK(span.bytes() < support::stack_span_max);
}
