#include "open_network.hpp"

#include <cordma/messages/message_stream.hpp>
#include <cordma/sim.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

constexpr unsigned messages = 40;

/// Receives until the client has closed. A stream's credits go back with no end that is asked for.
task<> receive_all(runtime& rt, const sim::host& here) {
  listener listening = rt.listen(here.endpoint(test::sim_port));
  message_stream stream{co_await listening.accept()};
  for (;;) {
    const auto next = co_await as_result(stream.receive());
    if (!next.has_value()) co_return;
    co_await sleep_for(1us);
  }
}

/// Returns how long the client's close takes.
duration time_to_close(std::uint64_t seed) {
  sim::world w{seed};
  sim::host& server = w.add_host("server");
  sim::host& client = w.add_host("client");
  duration taken{};
  const auto ask = [&](runtime& rt) -> task<> {
    co_await sleep_for(1ms);  // The server listens by then.
    message_stream stream{co_await rt.connect(server.endpoint(test::sim_port))};
    const std::array<std::byte, 64> text{};
    for (unsigned n = 0; n < messages; ++n) co_await stream.send(text);
    const time_point began = w.now();
    co_await stream.close();
    taken = w.now() - began;
  };
  server.start([&](runtime& rt) { return receive_all(rt, server); }, test::open_network);
  client.start(ask, test::open_network);
  w.run();
  return taken;
}

/// Keeps a connection until the client has closed it.
task<> keep_connection(runtime& rt, const sim::host& here, bool& has_accepted) {
  listener listening = rt.listen(here.endpoint(test::sim_port));
  connection conn = co_await listening.accept();
  has_accepted = true;
  local_mr memory = rt.memory().allocate_zeroed(64);
  static_cast<void>(co_await as_result(conn.recv(memory.slice())));
}

/// Returns how long a close takes while another task posts requests that raise no CQE.
duration time_to_close_while_posting(std::uint64_t seed) {
  sim::world w{seed};
  sim::host& server = w.add_host("server");
  sim::host& client = w.add_host("client");
  duration taken{};
  bool has_accepted = false;
  const auto post = [](connection& conn) {
    static_cast<void>(
        conn.post(write(const_local_mr_slice{}, remote_mr_slice{}, {.signaled = false})));
  };
  const auto ask = [&](runtime& rt) -> task<> {
    co_await sleep_for(1ms);  // The server listens by then.
    connection conn = co_await rt.connect(server.endpoint(test::sim_port));
    // A listener leaves out what has ended before it was accepted.
    while (!has_accepted) co_await sleep_for(1us);
    const time_point began = w.now();
    post(conn);
    co_await with_scope([&](scope& both) -> task<> {
      both.spawn(conn.close());
      both.spawn([&]() -> task<> {
        co_await sleep_for(1us);
        post(conn);
      });
      co_return;
    });
    taken = w.now() - began;
  };
  server.start([&](runtime& rt) { return keep_connection(rt, server, has_accepted); },
               test::open_network);
  client.start(ask, test::open_network);
  w.run();
  return taken;
}

/// Drops a listener in the middle of a handshake, or soon before or after. Returns true if it asked
/// about the client afterwards, when what it asks may be gone.
bool asks_after_drop(std::uint64_t seed) {
  sim::world w{seed};
  sim::host& server = w.add_host("server");
  sim::host& client = w.add_host("client");
  bool is_dropped = false, was_asked = false;
  const auto listen = [&](runtime& rt) -> task<> {
    listener_options limits;
    limits.admit = [&](connection_request&) { was_asked = was_asked || is_dropped; };
    {
      const listener dropped = rt.listen(server.endpoint(test::sim_port), limits);
      co_await sleep_for(1ms + std::chrono::nanoseconds{w.random(40'000)});
    }
    is_dropped = true;
    co_await sleep_for(1ms);
  };
  const auto connect = [&](runtime& rt) -> task<> {
    co_await sleep_for(1ms);
    static_cast<void>(co_await as_result(rt.connect(server.endpoint(test::sim_port))));
  };
  server.start(listen, test::open_network);
  client.start(connect, test::open_network);
  w.run();
  return was_asked;
}

}  // namespace

TEST_CASE("a close does not wait for requests whose ends nobody asked for", "[sim]") {
  duration longest{};
  for (std::uint64_t seed = 1; seed <= 50; ++seed) longest = std::max(longest, time_to_close(seed));
  CHECK(longest < 100ms);
}

TEST_CASE("a close does not wait for such requests that another task posts meanwhile", "[sim]") {
  duration longest{};
  for (std::uint64_t seed = 1; seed <= 50; ++seed)
    longest = std::max(longest, time_to_close_while_posting(seed));
  CHECK(longest < 100ms);
}

TEST_CASE("a listener that is dropped in the middle of a handshake asks no more about the client",
          "[sim]") {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    REQUIRE_FALSE(asks_after_drop(seed));
  }
}
