#include "ranks.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// Resumes nobody.
struct nobody_waits : waiter {
  nobody_waits() noexcept
      : waiter{[](waiter&) noexcept -> std::coroutine_handle<> { return std::noop_coroutine(); }} {}
};

/// Two ranks on a runtime. Rank 0 begins an operation, of which the task is destroyed some
/// iterations later, then the groups, then the runtime.
void end_in_the_middle(const std::function<task<>(group&, local_mr&)>& begin,
                       const std::function<task<>(group&, local_mr&)>& other, unsigned iterations) {
  runtime rt{test::on_test_device()};
  const std::vector<meeting> meetings = meeting::in_process(2);
  std::vector<group> groups(2);
  local_mr memory = rt.memory().allocate_zeroed(2 << 20);
  local_mr others = rt.memory().allocate_zeroed(2 << 20);
  std::optional<task<>> here, there;
  nobody_waits first, second;
  const auto run = [&]() -> task<> {
    const auto join = [&](unsigned r) -> task<> {
      groups[r] = co_await group::join(rt, meetings[r]);
    };
    co_await when_all(join(0), join(1));
    co_await when_all(groups[0].barrier(), groups[1].barrier());
    here.emplace(begin(groups[0], memory));
    static_cast<void>(here->start(first, {&rt.executor(), {}}));
    there.emplace(other(groups[1], others));
    static_cast<void>(there->start(second, {&rt.executor(), {}}));
    for (unsigned n = 0; n < iterations; ++n) co_await rt.executor().sleep_for(0ns);
  };
  rt.run(run());
  here.reset();
  there.reset();
}

}  // namespace

TEST_CASE("a runtime may end in the middle of operations whose tasks are gone", "[group][device]") {
  const std::size_t bytes = GENERATE(std::size_t{64}, std::size_t{1 << 20});
  const bool both = GENERATE(true, false);
  const auto reduce = [bytes](group& g, local_mr& m) -> task<> {
    co_await g.all_reduce<float>(m.slice(0, bytes), m.slice(0, bytes), reduction::sum);
  };
  const auto idle = [](group&, local_mr&) -> task<> { co_return; };
  for (unsigned iterations = 0; iterations < 12; ++iterations) {
    INFO(bytes << " bytes, " << iterations << " iterations");
    CHECK_NOTHROW(end_in_the_middle(reduce, both ? std::function{reduce} : idle, iterations));
  }
}

TEST_CASE("a runtime may end in the middle of messages by tag", "[group][device]") {
  const std::size_t bytes = GENERATE(std::size_t{64}, std::size_t{1 << 20});
  const auto send = [bytes](group& g, local_mr& m) -> task<> {
    co_await g.send(m.slice(0, bytes), 1);
  };
  const auto receive = [bytes](group& g, local_mr& m) -> task<> {
    co_await g.receive(m.slice(0, bytes), 0);
  };
  for (unsigned iterations = 0; iterations < 12; ++iterations) {
    INFO(bytes << " bytes, " << iterations << " iterations");
    CHECK_NOTHROW(end_in_the_middle(send, receive, iterations));
  }
}
