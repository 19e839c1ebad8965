#include "open_network.hpp"
#include "raw_side.hpp"

#include <cordma/messages/message_stream.hpp>
#include <cordma/sim.hpp>

#include <catch2/catch.hpp>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string>
#include <system_error>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// A client that sends a message every millisecond, up to 100, and its server.
struct conversation {
  explicit conversation(const sim::faults& wanted, std::uint64_t seed = 1) : w{seed, wanted} {
    start();
  }
  void start() {
    why = {};
    received_count = 0;
    server.start([this](runtime& rt) { return receive(rt); }, test::open_network);
    client.start([this](runtime& rt) { return send(rt); }, test::open_network);
  }
  task<> receive(runtime& rt) {
    listener listening = rt.listen(server.endpoint(test::sim_port));
    auto made = co_await as_result(listening.accept());
    if (!made.has_value()) co_return;
    message_stream stream{std::move(made).value()};
    for (;;) {
      const auto received = co_await as_result(stream.receive());
      if (!received.has_value()) co_return;
      ++received_count;
    }
  }
  task<> send(runtime& rt) {
    co_await sleep_for(1ms);
    auto made = co_await as_result(rt.connect(server.endpoint(test::sim_port)));
    if (!made.has_value()) {
      why = made.failure().code;
      co_return;
    }
    message_stream stream{std::move(made).value()};
    const std::byte sent{1};
    for (unsigned n = 0; n < 100; ++n) {
      const auto done = co_await as_result(stream.send(std::span{&sent, 1}));
      if (!done.has_value()) {
        why = done.failure().code;
        co_return;
      }
      co_await sleep_for(1ms);
    }
    co_await stream.close();
  }

  sim::world w;
  sim::host& server = w.add_host("server");
  sim::host& client = w.add_host("client");
  unsigned received_count = 0;
  std::error_code why;
};

}  // namespace

TEST_CASE("a device that fails ends what its host has under way, and the host can start again",
          "[sim]") {
  conversation c{sim::faults::none()};
  c.w.after(50ms, [&] { c.client.fail_device(); });
  c.w.run(10s);
  CHECK(c.why == errc::device_failed);
  CHECK(c.received_count > 10);
  CHECK(c.received_count < 90);

  c.client.fail_device();  // Without a program.
  c.start();
  c.w.run(10s);
  CHECK_FALSE(c.why);
  CHECK(c.received_count == 100);
}

TEST_CASE("a device that has failed does nothing more for its program", "[sim]") {
  test::raw_world both;
  ibv_wc last{};
  std::string refused;
  bool is_answered = true;
  const std::string found = both.play(
      [&](test::raw_side& own, test::raw_side& other) -> task<> {
        both.a.fail_device();
        own.send(test::request(IBV_WR_RDMA_WRITE, &other), {own.piece(0, 8)});
        while (::ibv_poll_cq(own.cq, 1, &last) == 0) co_await sleep_for(1ms);
        if (::ibv_alloc_pd(own.context) == nullptr) refused = std::strerror(errno);
        while (is_answered) co_await sleep_for(1ms);
      },
      [&](test::raw_side& own, test::raw_side& other) -> task<> {
        co_await sleep_for(1ms);
        own.send(test::request(IBV_WR_RDMA_READ, &other), {own.piece(0, 8)});
        ibv_wc wc{};
        while (::ibv_poll_cq(own.cq, 1, &wc) == 0) co_await sleep_for(1ms);
        is_answered = wc.status != IBV_WC_RETRY_EXC_ERR;
      });
  CHECK(found == "");
  CHECK(last.status == IBV_WC_WR_FLUSH_ERR);
  CHECK(refused == std::strerror(EIO));
  CHECK_FALSE(is_answered);
}

TEST_CASE("a port that goes down ends the connections of its host", "[sim]") {
  sim::faults wanted;
  wanted.port_down = 0.02;
  wanted.port_down_max = 1ms;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    conversation c{wanted, seed};
    c.w.after(30s, [&] { c.server.kill(); });  // A client may never have come.
    c.w.run(60s);
    INFO(c.why.message());
    CHECK(c.why);
    if (c.received_count > 0) CHECK((c.why == errc::device_failed || c.why == errc::disconnected));
  }
}

TEST_CASE("a port that a test takes down ends connections, and serves others when it is up again",
          "[sim]") {
  conversation c{sim::faults::none()};
  c.w.after(50ms, [&] { c.server.set_port(false); });
  c.w.run(10s);
  CHECK(c.why);
  CHECK(c.received_count > 10);
  CHECK(c.received_count < 90);

  c.server.set_port(true);
  c.start();
  c.w.run(10s);
  CHECK_FALSE(c.why);
  CHECK(c.received_count == 100);
}

TEST_CASE("addresses that come and go end nothing", "[sim]") {
  sim::faults wanted;
  wanted.address_changes = 0.2;
  conversation c{wanted};
  c.w.run(10s);
  CHECK_FALSE(c.why);
  CHECK(c.received_count == 100);
}

TEST_CASE("healing a world ends the faults that happen by chance", "[sim]") {
  sim::faults wanted;
  wanted.outage = 1;
  wanted.outage_max = 1h;
  conversation c{wanted};
  c.w.heal();
  c.w.run(10s);
  CHECK(c.received_count == 100);
}

TEST_CASE("a handshake on a queue pair whose device has failed before says so", "[sim]") {
  sim::world w{1};
  sim::host& a = w.add_host("a");
  std::string text;
  std::error_code why;
  w.add_host("b").start([&](runtime& rt) -> task<> {
    const prepared_connection prepared = rt.prepare_connection();
    text = prepared.info();
    co_await sleep_for(1s);
  });
  a.start([&](runtime& rt) -> task<> {
    prepared_connection prepared = rt.prepare_connection();
    CHECK_FALSE(prepared.info().empty());  // Makes the queue pair.
    co_await sleep_for(100ms);
    why = (co_await as_result(prepared.connect(text))).failure().code;
  });
  w.after(50ms, [&] { a.fail_device(); });
  w.run();
  CHECK(why == errc::device_failed);
}
