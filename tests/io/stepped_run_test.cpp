#include <cordma/base/unique_fd.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/detail/io/fd_watch.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/io/wait_until.hpp>

#include "fake_reactor.hpp"

#include <catch2/catch.hpp>

#include <sys/eventfd.h>

#include <array>
#include <deque>
#include <memory>
#include <string>
#include <vector>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;
using run_state = executor::run_state;

namespace {

/// Steps while there is more to do now.
template <class Run>
executor::step_outcome settle(Run& run) {
  for (;;) {
    const executor::step_outcome outcome = run.step();
    if (outcome.state != run_state::working) return outcome;
  }
}

task<int> seven_after(duration time) {
  co_await sleep_for(time);
  co_return 7;
}

/// One end's messages, which the other end leaves here.
struct inbox {
  explicit inbox(cordma::executor& e) noexcept : owner{e}, has_come{e} {}

  void leave(int message) {
    owner.post([this, message] {
      messages.push_back(message);
      has_come.set();
    });
  }
  task<int> receive() {
    while (messages.empty()) {
      has_come.reset();
      co_await has_come.wait();
    }
    const int first = messages.front();
    messages.pop_front();
    co_return first;
  }

  cordma::executor& owner;
  event has_come;
  std::deque<int> messages;
};

/// Two executors on one clock.
struct two_hosts {
  manual_clock clock;
  fake_reactor* reactors[2] = {};
  executor first{options_of(0)};
  executor second{options_of(1)};

 private:
  executor_options options_of(int host) {
    auto made = std::make_unique<fake_reactor>(clock);
    reactors[host] = made.get();
    return {.clock = &clock, .reactor = std::move(made)};
  }
};

}  // namespace

TEST_CASE("a step blocks until the next timer, which fires by the clock", "[io]") {
  fake_time fake;
  auto run = fake.exec.begin(seven_after(1h));
  CHECK(fake.exec.next_deadline() == time_point::max());  // No timer is armed yet.
  executor::step_outcome outcome = settle(run);
  CHECK(outcome.state == run_state::blocked);
  CHECK(outcome.deadline == time_point{} + 1h);
  fake.clock.advance(59min);
  CHECK(settle(run).state == run_state::blocked);
  fake.clock.advance(1min);
  outcome = settle(run);
  CHECK(outcome.state == run_state::ended);
  CHECK(outcome.deadline == time_point::max());
  CHECK(run.take() == 7);
  CHECK(fake.exec.counters().waits == 0);
}

TEST_CASE("a step does one iteration", "[io]") {
  fake_time fake;
  const auto yield = []() -> task<> {
    for (int i = 0; i < 10; ++i) co_await sleep_for(duration{});
  };
  auto run = fake.exec.begin(yield());
  for (std::uint64_t steps = 1; run.step().state != run_state::ended; ++steps) {
    REQUIRE(fake.exec.counters().iterations == steps);
    REQUIRE(steps < 100);
  }
}

TEST_CASE("two executors that are stepped in turn on one thread exchange messages", "[io]") {
  two_hosts hosts;
  inbox to_first{hosts.first};
  inbox to_second{hosts.second};
  std::vector<scheduler*> ran_on;
  const auto ask = [&]() -> task<int> {
    int sum = 0;
    for (int i = 0; i < 5; ++i) {
      to_second.leave(i);
      sum += co_await to_first.receive();
      ran_on.push_back(scheduler::of_this_thread());
    }
    to_second.leave(-1);
    co_return sum;
  };
  const auto answer = [&]() -> task<int> {
    for (int count = 0;; ++count) {
      const int message = co_await to_second.receive();
      if (message < 0) co_return count;
      co_await sleep_for(1min);
      to_first.leave(10 * message);
    }
  };
  auto asking = hosts.first.begin(ask());
  auto answering = hosts.second.begin(answer());
  run_state first{};
  run_state second{};
  for (int rounds = 0; first != run_state::ended || second != run_state::ended; ++rounds) {
    REQUIRE(rounds < 100);
    const executor::step_outcome one = settle(asking);
    const executor::step_outcome other = settle(answering);
    first = one.state;
    second = other.state;
    if (hosts.reactors[0]->wakes + hosts.reactors[1]->wakes > 0) {
      hosts.reactors[0]->wakes = hosts.reactors[1]->wakes = 0;
    } else if (other.deadline != time_point::max()) {
      hosts.clock.advance(other.deadline - hosts.clock.now());
    }
    CHECK(scheduler::of_this_thread() == nullptr);
  }
  CHECK(asking.take() == 100);
  CHECK(answering.take() == 5);
  CHECK(ran_on == std::vector<scheduler*>(5, &hosts.first));
  CHECK(hosts.clock.now() == time_point{} + 5min);
}

TEST_CASE("a call that is posted to a blocked executor wakes its reactor, once", "[io]") {
  fake_time fake;
  event come{fake.exec};
  auto run = fake.exec.begin(come.wait());
  CHECK(settle(run).state == run_state::blocked);
  CHECK(fake.reactor->wakes == 0);
  fake.exec.post([&] { come.set(); });
  fake.exec.post([] {});
  CHECK(fake.reactor->wakes == 1);
  CHECK(settle(run).state == run_state::ended);
}

TEST_CASE("a run that is dropped in its middle leaves nothing, and the next one works", "[io]") {
  fake_time fake;
  const auto held = std::make_shared<int>(0);
  const auto hold = [](std::shared_ptr<int> own) -> task<> {
    co_await with_timeout(sleep_for(2h), 1h);
    ++*own;
  };
  const std::size_t steps = GENERATE(range(std::size_t{0}, std::size_t{4}));
  {
    auto run = fake.exec.begin(hold(held));
    for (std::size_t i = 0; i < steps; ++i) run.step();
    CHECK(held.use_count() > 1);
  }
  CHECK(held.use_count() == 1);
  CHECK(fake.exec.next_deadline() == time_point::max());
  CHECK_FALSE(fake.exec.is_running());
  CHECK(fake.exec.run(seven_after(1s)) == 7);
  CHECK(*held == 0);
}

TEST_CASE("a stepped run goes on until the closer is empty", "[io]") {
  fake_time fake;
  const auto close = [](bool& is_closed) -> task<> {
    co_await sleep_for(1h);
    is_closed = true;
  };
  bool is_closed = false;
  event set;
  set.set();
  auto run = fake.exec.begin(set.wait());
  fake.exec.closer().spawn(close(is_closed));
  CHECK(settle(run).state == run_state::blocked);
  fake.clock.advance(1h);
  CHECK(settle(run).state == run_state::ended);
  CHECK(is_closed);
}

TEST_CASE("a stepped run throws what its operation threw when the outcome is taken", "[io]") {
  fake_time fake;
  const auto fail = []() -> task<> {
    co_await sleep_for(duration{});
    throw error{{.code = errc::closed, .call = "test"}};
  };
  auto run = fake.exec.begin(fail());
  CHECK(settle(run).state == run_state::ended);
  CHECK_THROWS_AS(run.take(), error);
}

TEST_CASE("a step tells that a poller forbids blocking, and polls it once", "[io]") {
  fake_time fake;
  int polls = 0;
  bool has_come = false;
  const auto condition = [&] {
    ++polls;
    return has_come;
  };
  fake.exec.run(wait_until(fake.exec, [] {
    static int calls = 0;
    return ++calls == 1000;
  }));
  auto run = fake.exec.begin(wait_until(fake.exec, condition));
  CHECK(settle(run).state == run_state::spinning);
  polls = 0;
  CHECK(run.step().state == run_state::spinning);
  CHECK(polls == 1);
  has_come = true;
  CHECK(settle(run).state == run_state::ended);
}

TEST_CASE("a blocked run continues after a wait of its reactor on the kernel", "[io]") {
  executor exec{{.backend = GENERATE(io_backend::automatic, io_backend::epoll)}};
  const unique_fd fd{::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
  const auto body = [](cordma::executor& e, int descriptor) -> task<> {
    co_await readable(e, descriptor);
    co_await sleep_for(1ms);
  };
  auto run = exec.begin(body(exec, fd.get()));
  CHECK(settle(run).state == run_state::blocked);
  REQUIRE(::eventfd_write(fd.get(), 1) == 0);
  while (settle(run).state != run_state::ended) exec.reactor().wait();
}
