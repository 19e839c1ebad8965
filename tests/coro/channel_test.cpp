#include <cordma/coro/channel.hpp>

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/foreign_task.hpp"
#include "support/manual_executor.hpp"
#include "support/skip.hpp"
#include "support/stack_span.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <vector>

using namespace cordma;
using support::foreign_task;
using support::manual_executor;

using channel_of_int = channel<int>;
static_assert(operation<channel_of_int::send_op> && operation<channel_of_int::receive_op>);
static_assert(std::is_nothrow_move_constructible_v<channel_of_int::send_op>);
static_assert(std::is_nothrow_move_constructible_v<channel_of_int::receive_op>);

namespace {

using started_receive = support::started<channel_of_int::receive_op>;
using started_send = support::started<channel_of_int::send_op>;

task<> echo(channel_of_int& in, channel_of_int& out, support::stack_span& span) {
  while (true) {
    const std::optional<int> item = co_await in.receive();
    if (!item) break;
    span.mark();
    co_await out.send(*item);
  }
  out.close();
}
task<int> ping(channel_of_int& out, channel_of_int& in, int count, support::stack_span& span) {
  int sum = 0;
  for (int n = 0; n < count; ++n) {
    co_await out.send(1);
    span.mark();
    sum += (co_await in.receive()).value();
  }
  out.close();
  const std::optional<int> after_close = co_await in.receive();
  CHECK_FALSE(after_close.has_value());
  co_return sum;
}
int ping_pong(manual_executor& executor, int count, support::stack_span& span) {
  channel_of_int there{1}, back{1};
  auto both = when_all(echo(there, back, span), ping(there, back, count, span));
  return std::get<1>(executor.run(both));
}

}  // namespace

TEST_CASE("a channel passes items in order, and both sides wait for room and for items", "[coro]") {
  manual_executor executor;
  channel<std::unique_ptr<int>> c{2};
  std::vector<int> got;
  const auto producer = [](channel<std::unique_ptr<int>>& out) -> task<> {
    for (int n = 0; n < 100; ++n) co_await out.send(std::make_unique<int>(n));
    out.close();
  };
  const auto consumer = [](channel<std::unique_ptr<int>>& in, std::vector<int>& to) -> task<> {
    while (true) {
      const auto item = co_await in.receive();
      if (!item) break;
      to.push_back(**item);
    }
  };
  executor.run(when_all(producer(c), consumer(c, got)));
  REQUIRE(got.size() == 100);
  CHECK(std::is_sorted(got.begin(), got.end()));
}

TEST_CASE("try_send and try_receive never wait, and leave what they refuse", "[coro]") {
  channel<std::unique_ptr<int>> c{1};
  CHECK_FALSE(c.try_receive());
  CHECK(c.try_send(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  CHECK_FALSE(c.try_send(std::move(second)));
  CHECK(second != nullptr);
  CHECK(**c.try_receive() == 1);
  c.close();
  CHECK_FALSE(c.try_send(std::move(second)));
  CHECK(second != nullptr);
}

TEST_CASE("closing lets receivers empty the channel, and refuses senders, waiting ones too",
          "[coro]") {
  manual_executor executor;
  channel_of_int c{1};
  executor.run(c.send(1));
  started_send waiting{executor.scheduler, c.send(2)};
  c.close();
  executor.settle();
  REQUIRE(waiting.has_ended());
  CHECK(waiting->take_result().failure().code == errc::closed);
  CHECK_THROWS_AS(executor.run(c.send(3)), error);
  CHECK(executor.run(c.receive()) == 1);
  CHECK(executor.run(c.receive()) == std::nullopt);
  CHECK(executor.run(as_result(c.receive())).has_value());
}

TEST_CASE("a receive that was stopped before the close says so", "[coro]") {
  manual_executor executor;
  channel_of_int c{1};
  started_receive receiving{executor.scheduler, c.receive()};
  receiving.request_stop();
  c.close();
  executor.settle();
  CHECK(receiving->failed());
  CHECK(receiving->take_result().is_cancelled());
}

TEST_CASE("two peers that each send and receive at once do not wait for each other", "[coro]") {
  manual_executor executor;
  channel_of_int a{1}, b{1};
  const auto peer = [](channel_of_int& out, channel_of_int& in) -> task<int> {
    co_return std::get<1>(co_await when_all(out.send(5), in.receive())).value();
  };
  const auto sums = executor.run(when_all(peer(a, b), peer(b, a)));
  CHECK(sums == std::tuple{5, 5});
}

TEST_CASE("a receive that loses or is abandoned leaves the item to the next", "[coro]") {
  manual_executor executor;
  channel_of_int a{4}, b{4};
  {
    support::started racing{executor.scheduler, when_any(a.receive(), b.receive())};
    static_cast<void>(a.try_send(1));
    static_cast<void>(b.try_send(2));
    executor.settle();
    REQUIRE(racing.has_ended());
    CHECK(std::get<0>((*racing).take()) == 1);
  }
  CHECK(b.try_receive() == 2);
  {
    started_receive abandoned{executor.scheduler, a.receive()};
    static_cast<void>(a.try_send(3));
    static_cast<void>(a.try_send(4));
  }
  CHECK(a.try_receive() == 3);
  CHECK(a.try_receive() == 4);
}

TEST_CASE("nothing is lost, doubled or reordered through 10^5 random steps", "[coro]") {
  std::mt19937 random{23};
  manual_executor executor;
  channel_of_int c{3};
  std::deque<std::unique_ptr<started_send>> sends;
  std::unique_ptr<started_receive> receive;
  int next = 0, received = 0;
  std::deque<int> expected;  // Sent or waiting to be, in order.
  std::deque<int> numbers;   // the numbers of `sends`
  const auto inspect = [&] {
    if (!receive || !receive->has_ended()) return;
    if (const auto outcome = (**receive).take_result(); outcome.has_value()) {
      REQUIRE((*outcome).has_value());
      REQUIRE_FALSE(expected.empty());
      REQUIRE(**outcome == expected.front());
      expected.pop_front();
      ++received;
    }
    receive.reset();
  };
  for (int step = 0; step < 100'000; ++step) {
    switch (random() % 8) {
      case 0:
      case 1:
        if (sends.size() == 6) break;
        numbers.push_back(next);
        expected.push_back(next);
        sends.push_back(std::make_unique<started_send>(executor.scheduler, c.send(next++)));
        break;
      case 2:
      case 3:
        if (!receive) receive = std::make_unique<started_receive>(executor.scheduler, c.receive());
        break;
      case 4:
        if (receive) receive->request_stop();
        break;
      case 5:
        if (random() % 2 == 0) receive.reset();
        break;
      case 6:
        if (!sends.empty() && random() % 4 == 0) sends[random() % sends.size()]->request_stop();
        break;
      default:
        executor.scheduler.run_ready();
        inspect();
        while (!sends.empty() && sends.front()->has_ended()) {
          if ((**sends.front()).take_result().is_cancelled()) {
            std::erase(expected, numbers.front());
          }
          sends.pop_front();
          numbers.pop_front();
        }
    }
    // A send that was stopped is out of the queue at once.
    for (std::size_t n = 0; n < sends.size(); ++n) {
      if ((**sends[n]).failed() && sends[n]->has_ended()) std::erase(expected, numbers[n]);
    }
    if (step % 64 == 0) executor.settle();
  }
  CHECK(received > 5'000);
}

TEST_CASE("10^5 ping-pongs do not grow the stack", "[coro]") {
  manual_executor executor;
  support::stack_span span;
  CHECK(ping_pong(executor, 100'000, span) == 100'000);
  CHECK(span.bytes() < support::stack_span_max);
}

TEST_CASE("foreign coroutines use a channel, and the last one may destroy it", "[coro]") {
  std::vector<int> got;
  auto c = std::make_unique<channel_of_int>(1);
  const auto producer = [&]() -> foreign_task {
    for (int n = 0; n < 5; ++n) co_await c->send(n);
    c->close();
  };
  const auto consumer = [&]() -> foreign_task {
    while (true) {
      const auto item = co_await c->receive();
      if (!item) break;
      got.push_back(*item);
    }
    c.reset();
  };
  const foreign_task in = producer();
  const foreign_task out = consumer();
  in.rethrow();
  out.rethrow();
  CHECK(out.done());
  CHECK(got == std::vector{0, 1, 2, 3, 4});
  CHECK(c == nullptr);

  c = std::make_unique<channel_of_int>(1);
  const foreign_task waits = consumer();
  c->close();
  CHECK(c == nullptr);
}

TEST_CASE("a channel without room or with senders left is a broken contract", "[coro]") {
  CHECK(support::run_in_child([] { channel_of_int none{0}; }).aborted);
  CHECK(support::run_in_child([] {
          manual_executor executor;
          std::optional<channel_of_int> c{std::in_place, 1};
          static_cast<void>(c->try_send(1));
          started_send waiting{executor.scheduler, c->send(2)};
          c.reset();
        }).aborted);
}

TEST_CASE("a channel makes no malloc once warm", "[coro]") {
  if (!support::counts_allocations()) CORDMA_SKIP("allocations are not counted under a sanitizer");
  manual_executor executor;
  support::stack_span span;
  channel_of_int there{1}, back{1};
  std::uint64_t counted = 0;
  const auto measure = [](channel_of_int& out, channel_of_int& in, std::uint64_t& to) -> task<> {
    for (int n = 0; n < 10'010; ++n) {
      if (n == 10) to = support::allocation_count();
      co_await out.send(n);
      static_cast<void>(co_await in.receive());
    }
    to = support::allocation_count() - to;
    out.close();
  };
  executor.run(when_all(echo(there, back, span), measure(there, back, counted)));
  CHECK(counted == 0);
}
