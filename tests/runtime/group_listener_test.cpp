#include <cordma/runtime/runtime_group.hpp>

#include "connection/bootstrap.hpp"
#include "connection/handshake.hpp"
#include "io/stream_channel.hpp"
#include "request/queue_pair.hpp"
#include "support/leaks.hpp"
#include "support/runtime_group.hpp"
#include "support/verbs_faults.hpp"

#include <cordma/coro/event.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <latch>
#include <thread>

using namespace cordma;
using namespace std::chrono_literals;
using test::group_of;

namespace {

/// Ends when the client closes, or at the stop.
task<> hold(runtime&, unsigned, connection conn) {
  static_cast<void>(co_await as_result(conn.next_message()));
}

/// Ends with the first message, and then closes.
task<> take_one(runtime& rt, unsigned, connection conn) {
  local_mr memory = rt.memory().allocate_zeroed(8);
  static_cast<void>(co_await conn.recv(memory.slice()));
  co_await conn.close();
}

task<> send_one(runtime& rt, connection& conn) {
  local_mr memory = rt.memory().allocate_zeroed(8);
  static_cast<void>(co_await conn.send(memory.slice()));
}

/// Waits until the server has ended the connection, and gives the reason.
task<std::error_code> ending(connection& conn) {
  const auto m = co_await as_result(conn.next_message());
  co_return m.has_failure() ? m.failure().code : std::error_code{};
}

task<> come_and_go(runtime& rt, endpoint where) {
  connection conn = co_await rt.connect(where);
  co_await send_one(rt, conn);
  static_cast<void>(co_await ending(conn));
}

task<> many_come_and_go(runtime& rt, endpoint where, unsigned count) {
  const auto all = [&](scope& inner) -> task<> {
    for (unsigned i = 0; i < count; ++i) inner.spawn(come_and_go(rt, where));
    co_return;
  };
  co_await with_scope(all);
}

}  // namespace

TEST_CASE("connections of one port are spread evenly over the threads", "[runtime][device]") {
  constexpr unsigned threads = 3;
  constexpr unsigned each = 4;
  std::array<std::atomic<unsigned>, threads> taken{};
  std::atomic<unsigned> misplaced = 0;
  std::latch begun{threads * each};
  runtime_group group{group_of(threads)};
  const auto handler = [&](runtime& rt, unsigned index, connection conn) {
    ++taken[index];
    misplaced += &rt == &group[index] ? 0 : 1;
    begun.count_down();
    return hold(rt, index, std::move(conn));
  };
  const group_listener& acceptor = group.serve({}, handler);
  CHECK(acceptor.local_endpoint().host == "127.0.0.1");
  CHECK(acceptor.local_endpoint().port != 0);
  runtime rt{test::on_test_device()};
  std::vector<connection> clients;
  for (unsigned i = 0; i < threads * each; ++i) {
    clients.push_back(rt.run(rt.connect(acceptor.local_endpoint())));
  }
  begun.wait();
  for (const auto& count : taken) CHECK(count == each);
  CHECK(misplaced == 0);
  CHECK(acceptor.counters().connected == threads * each);
}

TEST_CASE("threads take turns, but one that has fewer connections gets the next",
          "[runtime][device]") {
  std::array<std::atomic<unsigned>, 2> taken{};
  runtime_group group{group_of(2)};
  const auto handler = [&](runtime& rt, unsigned index, connection conn) {
    ++taken[index];
    return take_one(rt, index, std::move(conn));
  };
  runtime rt{test::on_test_device()};
  connection held;
  serve_options options;
  std::array<unsigned, 2> expected{};
  // Connections come one at a time: the next is accepted when the first thread knows that the last
  // has ended.
  SECTION("turns") {
    options.connections_max = 1;
    expected = {3, 3};
  }
  SECTION("fewer") {
    options.connections_max = 2;
    expected = {1, 6};
  }
  const group_listener& acceptor = group.serve({}, handler, options);
  if (options.connections_max == 2) held = rt.run(rt.connect(acceptor.local_endpoint()));
  for (int i = 0; i < 6; ++i) rt.run(come_and_go(rt, acceptor.local_endpoint()));
  CHECK(taken[0] == expected[0]);
  CHECK(taken[1] == expected[1]);
}

TEST_CASE("data goes both ways on every thread", "[runtime][device]") {
  runtime_group group{group_of(2)};
  const auto echo = [](runtime& rt, unsigned, connection conn) -> task<> {
    local_mr memory = rt.memory().allocate_zeroed(8);
    static_cast<void>(co_await conn.recv(memory.slice()));
    static_cast<void>(co_await conn.send(memory.slice()));
    static_cast<void>(co_await as_result(conn.next_message()));
  };
  const group_listener& acceptor = group.serve({}, echo);
  runtime rt{test::on_test_device()};
  const auto ask = [&](std::byte word) -> task<std::byte> {
    connection conn = co_await rt.connect(acceptor.local_endpoint());
    local_mr memory = rt.memory().allocate_zeroed(16);
    conn.post_recv(memory.slice(8, 8));
    memory.bytes()[0] = word;
    static_cast<void>(co_await conn.send(memory.slice(0, 8)));
    static_cast<void>(co_await conn.next_message());
    co_return memory.bytes()[8];
  };
  auto [a, b] = rt.run(when_all(ask(std::byte{7}), ask(std::byte{8})));
  CHECK(std::to_integer<int>(a) == 7);
  CHECK(std::to_integer<int>(b) == 8);
}

TEST_CASE("a handler that throws ends its own connection, and is told of", "[runtime][device]") {
  runtime_group group{group_of(2)};
  std::array<std::string, 2> told;
  const auto handler = [&](runtime& rt, unsigned index, connection conn) -> task<> {
    if (index == 0) throw std::runtime_error{"no such table"};
    co_await take_one(rt, index, std::move(conn));
  };
  const auto note = [&](unsigned index, const handler_failure& f) { told[index] = f.to_string(); };
  group_listener& acceptor = group.serve({}, handler, {.on_failure = note});
  runtime rt{test::on_test_device()};
  connection failed = rt.run(rt.connect(acceptor.local_endpoint()));
  CHECK(rt.run(ending(failed)) == make_error_code(errc::disconnected));
  connection next = rt.run(rt.connect(acceptor.local_endpoint()));
  rt.run(send_one(rt, next));
  CHECK(rt.run(ending(next)) == make_error_code(errc::disconnected));
  group.stop();
  group.wait();
  CHECK_THAT(told[0], Catch::StartsWith("127.0.0.1:") && Catch::EndsWith(": no such table"));
  CHECK(told[1].empty());
  CHECK(acceptor.counters().connected == 2);
  CHECK(acceptor.counters().handlers_failed == 1);
  CHECK(acceptor.counters().rejected == 0);
}

TEST_CASE("a client that shakes no hands is told why, and the next is served",
          "[runtime][device][N2]") {
  runtime_group group{group_of(2)};
  std::string told;
  const auto note = [&](unsigned, const handler_failure& f) { told = f.to_string(); };
  group_listener& acceptor = group.serve({}, &take_one, {.connections_max = 1, .on_failure = note});
  runtime rt{test::on_test_device()};
  const auto speak = [&]() -> task<failure> {
    const socket_address where = socket_address::loopback(acceptor.local_endpoint().port);
    stream_channel s{co_await stream_socket::connect(rt.executor(), where)};
    const std::string_view words = "GET / HTTP/1.1\r\n\r\n";
    co_await write_all(s, std::as_bytes(std::span{words}));
    const auto heard = co_await as_result(bootstrap::read_hello(s));
    co_return heard.has_failure() ? heard.failure() : failure{};
  };
  CHECK(rt.run(speak()).code == make_error_code(errc::bad_handshake));
  rt.run(come_and_go(rt, acceptor.local_endpoint()));
  group.stop();
  group.wait();
  CHECK_THAT(told, Catch::Contains("not a cordma handshake"));
  CHECK(acceptor.counters().rejected == 1);
  CHECK(acceptor.counters().connected == 1);
}

TEST_CASE("clients above connections_max wait until others have ended", "[runtime][device][N5]") {
  constexpr unsigned most = 2;
  constexpr unsigned clients = 7;
  std::atomic<unsigned> now = 0;
  std::atomic<unsigned> peak = 0;
  runtime_group group{group_of(3)};
  const auto handler = [&](runtime& rt, unsigned index, connection conn) -> task<> {
    const unsigned mine = ++now;
    unsigned seen = peak;
    while (seen < mine && !peak.compare_exchange_weak(seen, mine)) continue;
    co_await take_one(rt, index, std::move(conn));
    --now;
  };
  group_listener& acceptor = group.serve({}, handler, {.connections_max = most});
  runtime rt{test::on_test_device()};
  rt.run(many_come_and_go(rt, acceptor.local_endpoint(), clients));
  CHECK(peak >= 1);
  CHECK(peak <= most);
  CHECK(acceptor.counters().connected == clients);
}

TEST_CASE("a client above connections_max is in the backlog, and gets its own timeout there",
          "[runtime][device][N5]") {
  runtime_group group{group_of(2)};
  group_listener& acceptor = group.serve({}, &hold, {.connections_max = 1});
  runtime rt{test::on_test_device()};
  const endpoint where = acceptor.local_endpoint();
  connection first = rt.run(rt.connect(where));
  connection_options impatient;
  impatient.connect_timeout = 20ms;
  const auto outcome = rt.run(as_result(rt.connect(where, impatient)));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == make_error_code(errc::timed_out));
  first = {};
  const connection next = rt.run(rt.connect(where));
  CHECK(next.is_open());
}

TEST_CASE("a stop ends handlers, and closes the port", "[runtime][device]") {
  std::atomic<unsigned> stopped = 0;
  std::latch begun{4};
  runtime_group group{group_of(2)};
  const auto handler = [&](runtime&, unsigned, connection conn) -> task<> {
    begun.count_down();
    const auto outcome = co_await as_result(conn.next_message());
    stopped += outcome.is_cancelled() ? 1 : 0;
  };
  group_listener& acceptor = group.serve({}, handler);
  runtime rt{test::on_test_device()};
  std::vector<connection> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(rt.run(rt.connect(acceptor.local_endpoint())));
  begun.wait();
  group.stop();
  group.wait();
  CHECK(stopped == 4);
  CHECK(acceptor.counters().handlers_failed == 0);
  for (connection& c : clients) {
    CHECK(rt.run(ending(c)) == make_error_code(errc::disconnected));
  }
  const auto outcome = rt.run(as_result(rt.connect(acceptor.local_endpoint())));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == std::errc::connection_refused);
}

TEST_CASE("dropping a group with connections open, and half open, leaves nothing behind",
          "[runtime][device][C3]") {
  runtime rt{test::on_test_device()};
  const auto drop = [&] {
    std::vector<connection> clients;
    std::vector<stream_socket> halfway;
    {
      runtime_group group{group_of(2)};
      const group_listener& acceptor = group.serve({}, &hold);
      const socket_address where = socket_address::loopback(acceptor.local_endpoint().port);
      for (int i = 0; i < 4; ++i) {
        halfway.push_back(rt.run(stream_socket::connect(rt.executor(), where)));
        clients.push_back(rt.run(rt.connect(acceptor.local_endpoint())));
      }
    }
    for (connection& c : clients) {
      CHECK(rt.run(ending(c)) == make_error_code(errc::disconnected));
    }
  };
  const auto closed = [&] {
    rt.run(current_environment());
    return test::holdings();
  };
  drop();  // Objects that are made once are there now.
  const std::string before = closed();
  drop();
  CHECK(closed() == before);
}

TEST_CASE("a group serves two ports, beside what it runs", "[runtime][device]") {
  runtime_group group{group_of(2)};
  const endpoint first = group.serve({}, &take_one).local_endpoint();
  const endpoint second = group.serve({}, &take_one).local_endpoint();
  CHECK(first.port != second.port);
  const auto visit = [&](runtime& rt, unsigned index) -> task<> {
    const endpoint where = index == 0 ? first : second;
    co_await come_and_go(rt, where);
  };
  group.run(visit);
  CHECK_THROWS_WITH(group.serve(first, &take_one), Catch::Contains(first.to_string()));
}

TEST_CASE("what no connection could be made with is refused when it is served",
          "[runtime][device][N9]") {
  runtime_group group{group_of(1)};
  CHECK_THROWS_WITH(group.serve({}, &hold, {.connections_max = 0}),
                    Catch::Contains("connections_max 0 is not between 1 and 1048576"));
  CHECK_THROWS_WITH(group.serve({}, &hold, {.handshakes_max = 0}),
                    Catch::Contains("handshakes_max 0 is not between 1 and 4096"));
  CHECK_THROWS_WITH(group.serve({}, &hold, {.handshake_timeout = 0ms}),
                    Catch::Contains("handshake_timeout 0 ms"));
  CHECK_THROWS_WITH(group.serve({}, &hold, {.tcp_backlog = 0}), Catch::Contains("tcp_backlog 0"));
  connection_options elsewhere;
  elsewhere.port = 99;
  CHECK_THROWS_WITH(group.serve({}, &hold, {.connections = elsewhere}),
                    Catch::Contains("port 99 exceeds the device's"));
}

TEST_CASE("what is served after the stop ends at once", "[runtime][device]") {
  runtime_group group{group_of(2)};
  group.stop();
  group.wait();
  const endpoint where = group.serve({}, &hold).local_endpoint();
  CHECK(where.port != 0);
}

TEST_CASE("connections on each thread take their receives from a pool of that thread's",
          "[runtime][device]") {
  constexpr unsigned threads = 2;
  std::array<std::atomic<shared_receives*>, threads> pools{};
  std::atomic<unsigned> elsewhere = 0;
  runtime_group group{group_of(threads)};
  serve_options options;
  options.connections_of = [&](runtime& rt, unsigned index) {
    connection_options o = rt.connection_defaults();
    o.receives_from = pools[index] = &rt.share_receives({.buffers = 64, .buffer_bytes = 64});
    return o;
  };
  std::latch begun{2 * threads};
  const auto handler = [&](runtime&, unsigned index, connection conn) -> task<> {
    const receive_share* const share = conn.qp().share();
    if (share == nullptr || &share->pool() != pools[index]) ++elsewhere;
    begun.count_down();
    static_cast<void>(co_await as_result(conn.qp().failed_event().wait()));
  };
  const group_listener& acceptor = group.serve({}, handler, options);
  runtime rt{test::on_test_device()};
  std::vector<connection> clients;
  for (unsigned i = 0; i < 2 * threads; ++i)
    clients.push_back(rt.run(rt.connect(acceptor.local_endpoint())));
  begun.wait();
  CHECK(elsewhere == 0);

  options.connections_of = [](runtime&, unsigned) -> connection_options {
    throw error{{.code = errc::limit_exceeded, .call = "test"}};
  };
  CHECK_THROWS_WITH(group.serve({}, &hold, options), Catch::Contains("test"));
  group.stop();
  group.wait();
}

TEST_CASE("what a thread's options leave unset is its runtime's", "[runtime][device]") {
  const auto marked = [](unsigned) {
    runtime_options options;
    options.connections.fabric.traffic_class = std::uint8_t{104};
    return test::on_test_device(std::move(options));
  };
  runtime_group group{{.each = marked, .threads = 1}};
  serve_options options;
  options.connections_of = [](runtime&, unsigned) { return connection_options{}; };
  const group_listener& acceptor = group.serve({}, &hold, options);
  runtime rt{test::on_test_device()};
  {
    const connection client = rt.run(rt.connect(acceptor.local_endpoint()));
    CHECK(client.agreement().rtr.peer.traffic_class == 104);
  }
  group.stop();
  group.wait();
}
