#include <cordma/sim.hpp>

#include <cordma/messages/message_stream.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <string>
#include <system_error>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// Texts that two programs exchange beside the network.
struct exchanged {
  std::array<std::string, 2> texts;

  task<connection> connect(runtime& rt, std::size_t side) {
    prepared_connection mine = rt.prepare_connection();
    texts[side] = mine.info();
    while (texts[1 - side].empty()) co_await sleep_for(1ms);
    co_return co_await mine.connect(texts[1 - side]);
  }
};

struct outcome {
  std::uint64_t hash = 0;
  std::uint64_t events = 0;
  duration took{};
  std::string text;
};

/// One host sends numbers to another, which sends them back.
outcome echo(std::uint64_t seed, const sim::faults& wanted) {
  sim::world w{seed, wanted};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  exchanged known;
  outcome seen;
  b.start([&](runtime& rt) -> task<> {
    message_stream stream{co_await known.connect(rt, 1)};
    for (int n = 0; n < 10; ++n) {
      const stream_message m = co_await stream.receive();
      co_await stream.send(m.bytes());
    }
    co_await stream.close();
  });
  a.start([&](runtime& rt) -> task<> {
    message_stream stream{co_await known.connect(rt, 0)};
    for (int n = 0; n < 10; ++n) {
      const auto sent = std::byte('0' + n);
      co_await stream.send(std::span{&sent, 1});
      const stream_message m = co_await stream.receive();
      seen.text += char(m.bytes()[0]);
    }
    co_await stream.close();
  });
  const time_point began = w.now();
  w.run();
  seen.hash = w.trace_hash();
  seen.events = w.events();
  seen.took = w.now() - began;
  return seen;
}

}  // namespace

TEST_CASE("two hosts of a world exchange messages", "[sim]") {
  const outcome seen = echo(1, sim::faults::none());
  CHECK(seen.text == "0123456789");
  CHECK(seen.took < 1s);
}

TEST_CASE("a seed repeats, and another one gives another run", "[sim]") {
  const outcome first = echo(7, sim::faults::harsh());
  const outcome again = echo(7, sim::faults::harsh());
  const outcome other = echo(8, sim::faults::harsh());
  CHECK(first.text == "0123456789");
  CHECK(first.hash == again.hash);
  CHECK(first.events == again.events);
  CHECK(first.hash != other.hash);
}

TEST_CASE("time passes as it does for the programs", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  const time_point began = w.now();
  a.start([](runtime&) -> task<> { co_await sleep_for(3h); });
  w.run();
  CHECK(w.now() - began >= 3h);
  CHECK(w.now() - began < 3h + 1s);
}

TEST_CASE("a program that fails is found, with its host and the seed", "[sim]") {
  sim::world w{42};
  sim::host& a = w.add_host("a");
  a.start([](runtime&) -> task<> {
    co_await sleep_for(1s);
    throw std::runtime_error{"no such thing"};
  });
  try {
    w.run();
    FAIL("nothing was found");
  } catch (const sim::finding& found) {
    CHECK_THAT(found.what(),
               Catch::Contains("host a failed: no such thing") && Catch::Contains("seed 42"));
  }
}

TEST_CASE("a program that waits for what cannot come is found", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  a.start([](runtime& rt) -> task<> {
    event wait{rt.executor()};
    co_await wait.wait();
  });
  CHECK_THROWS_WITH(w.run(), Catch::Contains("these hosts wait: a"));
}

TEST_CASE("a partition that heals delays messages, and loses none", "[sim]") {
  sim::world w{3};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  exchanged known;
  std::size_t received = 0;
  b.start([&](runtime& rt) -> task<> {
    message_stream stream{co_await known.connect(rt, 1)};
    for (; received < 3; ++received) static_cast<void>(co_await stream.receive());
    co_await stream.close();
  });
  a.start([&](runtime& rt) -> task<> {
    message_stream stream{co_await known.connect(rt, 0)};
    for (int n = 0; n < 3; ++n) {
      co_await stream.send(std::span<const std::byte>{});
      co_await sleep_for(100ms);
    }
    co_await stream.close();
  });
  w.after(150ms, [&] { w.partition(a, b); });
  w.after(450ms, [&] { w.heal(); });
  w.run();
  CHECK(received == 3);
}

TEST_CASE("a host that is killed is noticed, and can be started again", "[sim]") {
  sim::world w{5};
  sim::host& a = w.add_host("a");
  sim::host& b = w.add_host("b");
  exchanged known;
  std::error_code noticed;
  bool has_restarted = false;
  b.start([&](runtime& rt) -> task<> {
    const connection conn = co_await known.connect(rt, 1);
    co_await sleep_for(1h);
  });
  a.start([&](runtime& rt) -> task<> {
    connection conn = co_await known.connect(rt, 0);
    local_mr buffer = rt.memory().allocate_zeroed(64);
    const auto received = co_await as_result(conn.recv(buffer.slice()));
    noticed = received.failure().code;
  });
  w.after(1s, [&] { b.kill(); });
  w.after(2s, [&] {
    b.start([&](runtime&) -> task<> {
      has_restarted = true;
      co_return;
    });
  });
  w.run();
  CHECK(noticed == wc_errc{IBV_WC_RETRY_EXC_ERR});
  CHECK(has_restarted);
  CHECK(w.now() < time_point{} + 20s);
}

TEST_CASE("a finding is reported also if the program catches it and goes on", "[sim]") {
  sim::world w{1};
  w.add_host("a").start([&](runtime&) -> task<> {
    try {
      w.fail("this must not be");
    } catch (const sim::finding&) {
    }
    co_await sleep_for(1s);
  });
  CHECK_THROWS_WITH(w.run(), Catch::Contains("this must not be"));
  CHECK(w.now().time_since_epoch() < 2s);
}
