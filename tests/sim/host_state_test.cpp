#include "io/host_calls.hpp"
#include "open_network.hpp"
#include "raw_side.hpp"
#include "support/variable.hpp"

#include <sys/socket.h>

#include <cordma/connection/listener.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/runtime/metrics.hpp>
#include <cordma/sim.hpp>

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <system_error>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

task<> sleep_a_while(runtime&) { co_await sleep_for(1s); }

std::string found_by(sim::world& w, time_span limit = 1h) {
  try {
    w.run(limit);
  } catch (const sim::finding& found) {
    return found.what();
  }
  return {};
}

}  // namespace

TEST_CASE("a frozen program does nothing until it thaws, and goes on from there", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  std::vector<duration> steps;
  const time_point began = w.now();
  a.start([&](runtime&) -> task<> {
    for (int n = 0; n < 10; ++n) {
      co_await sleep_for(100ms);
      steps.push_back(w.now() - began);
    }
  });
  w.after(350ms, [&] { a.freeze(); });
  w.after(2s, [&] { a.thaw(); });
  w.run();
  REQUIRE(steps.size() == 10);
  CHECK(steps[2] < 350ms);
  CHECK(steps[3] >= 2s);
  CHECK(steps[3] < 2s + 50ms);
  CHECK(steps[9] >= 2600ms);
  CHECK(steps[9] < 2700ms);
}

TEST_CASE("a program that thaws before anything came for it goes on as if nothing was", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  a.start(&sleep_a_while);
  const time_point began = w.now();
  for (const auto at : {100ms, 300ms}) {
    w.after(at, [&] { a.freeze(); });
    w.after(at + 50ms, [&] { a.thaw(); });
  }
  w.run();
  CHECK(w.now() - began >= 1s);
  CHECK(w.now() - began < 1s + 50ms);
}

TEST_CASE("the device of a frozen program serves its peers", "[sim]") {
  test::raw_world both;
  bool has_read = false;
  const std::string found = both.play(
      [&](test::raw_side& own, test::raw_side& other) -> task<> {
        both.b.freeze();
        other.memory[0] = std::byte{7};
        own.send(test::request(IBV_WR_RDMA_READ, &other), {own.piece(0, 8)});
        static_cast<void>(co_await own.completion());
        has_read = own.memory[0] == std::byte{7};
        both.b.thaw();
      },
      [](test::raw_side&, test::raw_side&) -> task<> { co_return; });
  CHECK(found == "");
  CHECK(has_read);
}

TEST_CASE("a busy program takes one step after the other, however many timers it has", "[sim]") {
  sim::world w{1};
  std::uint64_t steps = 0;
  w.add_host("a").start(
      [&steps](runtime& rt) -> task<> {
        for (int n = 0; n < 100; ++n) co_await sleep_for(100us);
        steps = rt.executor().counters().iterations;
      },
      [] {
        runtime_options busy;
        busy.cq.mode = completion_mode::busy;
        return busy;
      });
  w.run();
  CHECK(steps >= 100);
  CHECK(steps < 12'000);  // Each takes 1 us, or more.
}

TEST_CASE("a host that nobody thaws is found with those that wait", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  w.add_host("b").start(&sleep_a_while);
  a.start(&sleep_a_while);
  w.after(1ms, [&] { a.freeze(); });
  CHECK_THAT(found_by(w), Contains("nothing can happen any more, and these hosts wait: a\n"));
}

TEST_CASE("a host that was frozen, and then killed, starts as any other", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  bool has_run = false;
  a.start(&sleep_a_while);
  w.after(1ms, [&] {
    a.freeze();
    a.kill();
    CHECK_FALSE(a.is_running());
    a.start([&](runtime&) -> task<> {
      co_await sleep_for(1ms);
      has_run = true;
    });
    CHECK(a.is_running());
  });
  w.run();
  CHECK(has_run);
  CHECK_FALSE(a.is_running());
}

TEST_CASE("a program that has not ended within the limit is found", "[sim]") {
  sim::world w{1};
  w.add_host("quick").start([](runtime&) -> task<> { co_await sleep_for(1ms); });
  w.add_host("slow").start(&sleep_a_while);
  w.add_host("slower").start([](runtime&) -> task<> { co_await sleep_for(1h); });
  CHECK_THAT(found_by(w, 100ms),
             Contains("these hosts have not ended within the limit: slow, slower\n"));
  CHECK(w.now() < time_point{} + 1s + 100ms);
}

TEST_CASE("a world runs again, with hosts that start again", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  for (int n = 1; n <= 3; ++n) {
    a.start(&sleep_a_while);
    w.run(1100ms);
  }
  CHECK(w.now() >= time_point{} + 4s);
}

TEST_CASE("a host runs one program at a time", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  a.start(&sleep_a_while);
  CHECK_THROWS_WITH(a.start(&sleep_a_while), "host a runs a program already");
}

TEST_CASE("a program that leaves objects of its device behind is found, and they are named",
          "[sim]") {
  sim::world w{1};
  std::unique_ptr<test::raw_side> left;
  w.add_host("a").start([&](runtime&) -> task<> {
    left = std::make_unique<test::raw_side>();
    co_return;
  });
  CHECK_THAT(found_by(w), Catch::StartsWith("the process of host a left ") &&
                              Contains("contexts: 1") && Contains("protection domains: 1") &&
                              Contains("memory regions: 1") && Contains("completion queues: 1") &&
                              Contains("queue pairs: 1") && !Contains("sockets"));
  left.reset();
}

TEST_CASE("a program that leaves a socket open is found", "[sim]") {
  sim::world w{1};
  w.add_host("a").start([&](runtime& rt) -> task<> {
    auto& sockets = rt.executor().reactor().host().sockets();
    CHECK(sockets.make(AF_INET6) >= 0);
    co_return;
  });
  CHECK_THAT(found_by(w), Catch::StartsWith("the process of host a left sockets: 1"));
}

TEST_CASE("a host that loses its power is silent, and its connections time out", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  std::string why;
  time_point noticed;
  b.start(
      [&](runtime& rt) -> task<> {
        listener listening = rt.listen(b.endpoint(test::sim_port));
        const connection conn = co_await listening.accept();
        co_await sleep_for(1h);
      },
      test::open_network);
  a.start(
      [&](runtime& rt) -> task<> {
        co_await sleep_for(1ms);
        connection conn = co_await rt.connect(b.endpoint(test::sim_port));
        local_mr buffer = rt.memory().allocate_zeroed(64);
        const auto received = co_await as_result(conn.recv(buffer.slice()));
        why = received.failure().to_string();
        noticed = w.now();
      },
      test::open_network);
  const time_point lost = w.now() + 1s;
  w.after(1s, [&] { b.lose_power(); });
  CHECK(found_by(w) == "");
  INFO(why);
  CHECK(noticed > lost + 100ms);
}

TEST_CASE("a host without power does not answer, and one that was killed refuses", "[sim]") {
  for (const bool loses_power : {true, false}) {
    sim::world w{1};
    sim::host& a = w.add_host("a");
    sim::host& b = w.add_host("b");
    std::string why;
    b.start(&sleep_a_while);
    a.start(
        [&](runtime& rt) -> task<> {
          co_await sleep_for(100ms);
          why = (co_await as_result(rt.connect(b.endpoint(test::sim_port)))).failure().to_string();
        },
        test::open_network);
    w.after(50ms, [&] { loses_power ? b.lose_power() : b.kill(); });
    CHECK(found_by(w) == "");
    CHECK_THAT(why, Contains(loses_power ? "deadline passed" : "refused"));
  }
}

TEST_CASE("a host comes back with its name and address after it has lost its power", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  unsigned served = 0;
  const auto serve = [&](runtime& rt) -> task<> {
    listener listening = rt.listen(b.endpoint(test::sim_port));
    const connection conn = co_await listening.accept();
    ++served;
    co_await sleep_for(1s);
  };
  b.start(serve, test::open_network);
  a.start(
      [&](runtime& rt) -> task<> {
        for (int n = 0; n < 2; ++n) {
          co_await sleep_for(100ms);
          const connection conn = co_await rt.connect(b.endpoint(test::sim_port));
          co_await sleep_for(1s);
        }
      },
      test::open_network);
  w.after(500ms, [&] {
    b.lose_power();
    b.start(serve, test::open_network);
    CHECK(b.name() == "b");
  });
  CHECK(found_by(w) == "");
  CHECK(served == 2);
}

TEST_CASE("a host whose program cannot start leaves nothing behind, and starts later", "[sim]") {
  sim::faults wanted;
  wanted.refused_verbs = 0.3;
  unsigned refused = 0;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    sim::world w{seed, wanted};
    sim::host& a = w.add_host("a");
    bool ran = false;
    const auto program = [&](runtime&) -> task<> {
      ran = true;
      co_return;
    };
    try {
      a.start(program);
    } catch (const error&) {
      ++refused;
      CHECK_FALSE(a.is_running());
      w.heal();
      a.start(program);
    }
    w.run();
    CHECK(ran);
  }
  CHECK(refused > 0);
}

TEST_CASE("two hosts of a world have two names", "[sim]") {
  sim::world w{1};
  w.add_host("a");
  CHECK_THROWS_WITH(w.add_host("a"), Contains("two hosts of the name a"));
}

TEST_CASE("a simulated host serves no metrics over HTTP, and says so by name", "[sim]") {
  const test::variable on{"CORDMA_METRICS", "on"};  // Does nothing here.
  sim::world w{1};
  std::string why;
  w.add_host("a").start([&](runtime& rt) -> task<> {
    try {
      const metrics_server page{"127.0.0.1:0", rt};
    } catch (const error& e) {
      why = e.what();
    }
    co_return;
  });
  w.run();
  CHECK_THAT(why, Contains("metrics_server") && Contains("a simulated host has no threads") &&
                      Contains("to_prometheus"));
}
