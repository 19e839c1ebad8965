#include "connection/listener_state.hpp"

#include "connection/bootstrap.hpp"

#include "connection/link.hpp"
#include "io/logger.hpp"
#include "support/silent_client.hpp"
#include "support/some_hello.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <cerrno>
#include <functional>

using namespace cordma;
using namespace std::chrono_literals;
using test::some_hello;

namespace {

/// A client of a fixture, whose handshake needs no device.
struct greeter final : detail::arrival {
  explicit greeter(stream_socket socket)
      : arrival{socket.peer_address()}, peer_link{std::move(socket)} {}
  [[nodiscard]] bool may_move_to(const connection_resources&) const noexcept override {
    return false;
  }
  void move_to(const connection_resources&) override {}
  task<connection> shake_hands(const detail::handshake_terms&) override { co_return connection{}; }
  task<> refuse(failure why) override {
    return bootstrap::refuse(peer_link.refusal_channel(), peer_link.for_peer(why));
  }

  detail::link peer_link;
};

struct greeters_acceptor final : detail::acceptor {
  greeters_acceptor(cordma::executor& executor, int backlog)
      : sockets{executor, socket_address::loopback(0), backlog} {}
  task<std::unique_ptr<detail::arrival>> accept() override {
    co_return std::make_unique<greeter>(co_await sockets.accept());
  }
  void close() noexcept override { sockets.close(); }
  [[nodiscard]] socket_address local_address() const override { return sockets.local_address(); }

  stream_listener sockets;
};

/// Accepts whoever says hello properly; needs no device.
struct fixture {
  explicit fixture(const listener_options& options = {.handshakes_max = 4,
                                                      .handshake_timeout = 10s},
                   const time_source* clock = nullptr)
      : executor{{.clock = clock}} {
    server.reset(new detail::listener_state{
        executor, std::make_unique<greeters_acceptor>(executor, options.tcp_backlog),
        [this](detail::arrival& client) {
          return shake_hands(static_cast<greeter&>(client).peer_link.channel());
        },
        options});
  }
  test::raw_peer dial() {
    return executor.run(stream_socket::connect(executor, server->local_address()));
  }

  cordma::executor executor;
  std::vector<std::uint32_t> greeted;  ///< QPNs that clients named
  unsigned begun = 0;
  struct dropper {
    void operator()(detail::listener_state* state) const noexcept {
      cordma::executor& executor = state->executor;
      state->drop();
      executor.run(current_environment());
    }
  };
  std::unique_ptr<detail::listener_state, dropper> server;

 private:
  task<connection> shake_hands(byte_channel& stream) {
    ++begun;
    const handshake::hello remote = co_await test::read_greeting(stream);
    co_await test::say(stream, handshake::encode(some_hello(2)));
    co_await bootstrap::read_acceptance(stream, {});
    co_await test::say_accepted(stream);
    greeted.push_back(remote.qpn);
    co_return connection{};
  }
};

task<> say(byte_channel& s, std::vector<std::byte> bytes) { co_await write_all(s, bytes); }

std::vector<std::byte> greeting_bytes() {
  const auto start = handshake::encode(handshake::start{});
  const auto hello = handshake::encode(some_hello(7));
  std::vector<std::byte> bytes{start.begin(), start.end()};
  bytes.insert(bytes.end(), hello.begin(), hello.end());
  return bytes;
}

/// A proper client; gives the QPN that the server was told.
task<std::uint32_t> shake_on(byte_channel& s, std::uint32_t qpn) {
  co_await test::greet(s, some_hello(qpn));
  static_cast<void>(co_await bootstrap::read_hello(s));
  co_await test::say_accepted(s);
  co_await bootstrap::read_acceptance(s, {});
  co_return qpn;
}

task<std::uint32_t> shake(cordma::executor& executor, socket_address where, std::uint32_t qpn) {
  test::raw_peer s = co_await stream_socket::connect(executor, where);
  co_return co_await shake_on(s, qpn);
}

task<failure> hear_refusal(byte_channel& s) {
  const auto heard = co_await as_result(bootstrap::read_hello(s));
  co_return heard.has_failure() ? heard.failure() : failure{};
}

/// Lets pass what a handshake of 10 s may keep its place for, once so many have begun.
task<> one_grace_after(fixture& f, manual_clock& clock, unsigned begun) {
  co_await test::until(f.executor, [&] { return f.begun == begun; });
  clock.advance(1s);
}

bool next_client_is_served(fixture& f) {
  const std::uint32_t qpn = f.executor.run(shake(f.executor, f.server->local_address(), 99));
  const auto taken = f.executor.run(f.server->accept());
  return taken && f.greeted.back() == qpn;
}

}  // namespace

TEST_CASE("bad clients are told why in time, and the next is served", "[connection][N2]") {
  std::vector<std::byte> bytes = greeting_bytes();
  errc expected = errc::bad_handshake;
  std::chrono::milliseconds limit = 10s;
  SECTION("garbage") { std::fill(bytes.begin(), bytes.end(), std::byte{0xa5}); }
  SECTION("oversized, by its word") { bytes[6] = std::byte{1}; }
  SECTION("oversized, by its deeds") { bytes.resize(1000); }
  SECTION("another version") {
    bytes[4] = std::byte{9};
    expected = errc::incompatible_peer;
  }
  SECTION("short, then silent") {
    bytes.resize(60);
    expected = errc::timed_out;
    limit = 1s;
  }
  SECTION("silent") {
    bytes.clear();
    expected = errc::timed_out;
    limit = 1s;
  }
  fixture f{{.handshakes_max = 4, .handshake_timeout = limit}};
  test::raw_peer bad = f.dial();
  f.executor.run(say(bad, bytes));
  if (bytes.size() == 1000) {
    // The hello is fine; what follows it is no verdict.
    static_cast<void>(f.executor.run(bootstrap::read_hello(bad)));
  }
  CHECK(f.executor.run(hear_refusal(bad)).code == make_error_code(expected));
  CHECK(f.server->counters.rejected == 1);
  REQUIRE(f.server->last_rejection);
  CHECK(f.server->last_rejection->code == make_error_code(expected));
  CHECK(next_client_is_served(f));
  CHECK(f.server->counters.completed == 1);
}

TEST_CASE("slow clients do not keep others waiting, up to handshakes_max of them",
          "[connection][N2]") {
  fixture f{{.handshakes_max = 4, .handshake_timeout = 10s}};
  std::vector<test::raw_peer> slow;
  for (int i = 0; i < 3; ++i) slow.push_back(f.dial());
  CHECK(next_client_is_served(f));
}

TEST_CASE("a flood of silent clients keeps nobody out, of their own host or another",
          "[connection][floods][N2]") {
  const char* const flooder = GENERATE("127.0.0.1", "127.0.0.2");
  manual_clock clock;
  fixture f{{.handshakes_max = 16, .handshake_timeout = 10s}, &clock};
  const socket_address where = f.server->local_address();
  const auto silent = test::silent_clients(f.executor, flooder, where.port(), 64);
  auto all_served = [&]() -> task<> {
    for (const unsigned begun : {16u, 32u, 48u, 64u}) co_await one_grace_after(f, clock, begun);
  };
  auto [real, served] = f.executor.run(when_all(shake(f.executor, where, 3), all_served()));
  CHECK(f.greeted == std::vector{real});
  // Each newcomer but the first 16 took one place.
  CHECK(f.server->counters.dropped == 49);
  CHECK(f.server->counters.rejected == 0);
}

TEST_CASE("who is dropped is told why, and is never of a host that has fewer",
          "[connection][floods][N2]") {
  manual_clock clock;
  fixture f{{.handshakes_max = 3, .handshake_timeout = 10s}, &clock};
  const std::uint16_t port = f.server->local_address().port();
  test::raw_peer real = test::dial_from(f.executor, "127.0.0.2", port);
  auto silent = test::silent_clients(f.executor, "127.0.0.1", port, 5);
  f.executor.run(one_grace_after(f, clock, 3));
  f.executor.run(one_grace_after(f, clock, 5));
  f.executor.run(test::until(f.executor, [&] { return f.begun == 6; }));
  CHECK(f.server->counters.dropped == 3);
  // The youngest two have the places.
  for (std::size_t i = 0; i < 3; ++i) {
    const failure why = f.executor.run(hear_refusal(silent[i]));
    CHECK(why.code == make_error_code(errc::refused));
    CHECK_THAT(why.to_string(), Catch::Contains("dropped for a newer client: handshakes_max is 3"));
  }
  REQUIRE(f.server->last_rejection);
  CHECK(f.server->last_rejection->code == make_error_code(errc::refused));
  CHECK(f.executor.run(shake_on(real, 5)) == 5);
  CHECK(f.server->counters.completed == 1);
  CHECK(f.server->counters.dropped == 3);
}

TEST_CASE("a refused client that lingers gives its place up before one that shakes hands",
          "[connection][floods][N2]") {
  fixture f{{.handshakes_max = 2, .handshake_timeout = 10s}};
  test::raw_peer slow = f.dial();
  test::raw_peer bad = f.dial();
  f.executor.run(say(bad, std::vector(8, std::byte{0xa5})));
  CHECK(f.executor.run(hear_refusal(bad)).code == make_error_code(errc::bad_handshake));
  CHECK(next_client_is_served(f));
  CHECK(f.executor.run(shake_on(slow, 6)) == 6);
  CHECK(f.server->counters.rejected == 1);
  CHECK(f.server->counters.dropped == 0);
}

TEST_CASE("a newcomer drops no handshake that has succeeded and waits to be accepted",
          "[connection][floods][N5]") {
  fixture f{{.handshakes_max = 2, .handshake_timeout = 10s, .ready_max = 1}};
  const socket_address where = f.server->local_address();
  for (std::uint32_t qpn = 2; qpn < 5; ++qpn) f.executor.run(shake(f.executor, where, qpn));
  auto accept_all = [&]() -> task<int> {
    co_await test::until(f.executor, [&] { return f.server->counters.completed == 3; });
    for (int taken = 0; taken < 4; ++taken) {
      const std::optional<connection> next = co_await f.server->accept();
      if (!next) co_return taken;
    }
    co_return 4;
  };
  auto [last, taken] = f.executor.run(when_all(shake(f.executor, where, 5), accept_all()));
  CHECK(taken == 4);
  CHECK(f.server->counters.completed == 4);
  CHECK(f.server->counters.dropped == 0);
}

TEST_CASE("a client that drips a byte at a time meets the deadline all the same",
          "[connection][N2]") {
  manual_clock clock;
  fixture f{{.handshakes_max = 1, .handshake_timeout = 50ms}, &clock};
  test::raw_peer slow = f.dial();
  const auto bytes = greeting_bytes();
  REQUIRE(bytes.size() * 5ms > 50ms);
  auto drip = [&]() -> task<> {
    co_await test::until(f.executor, [&] { return f.begun == 1; });
    for (const std::byte& b : bytes) {
      const auto sent = co_await as_result(write_all(slow, {&b, 1}));
      if (!sent.has_value()) co_return;
      clock.advance(5ms);
      co_await test::due_timers_fired();
    }
  };
  auto hear = [&]() -> task<failure> { co_return co_await hear_refusal(slow); };
  auto [dripped, heard] = f.executor.run(when_all(drip(), hear()));
  CHECK(heard.code == make_error_code(errc::timed_out));
}

TEST_CASE("a client that connects and leaves is nobody's problem", "[connection][N4]") {
  fixture f;
  for (int i = 0; i < 20; ++i) static_cast<void>(f.dial());
  CHECK(next_client_is_served(f));
}

TEST_CASE("accept times out, and a stop loses no connection", "[connection][N4][C7]") {
  fixture f;
  const auto none = f.executor.run(as_result(with_timeout(f.server->accept(), 5ms)));
  REQUIRE(none.has_failure());
  CHECK(none.failure().code == make_error_code(errc::timed_out));
  CHECK(next_client_is_served(f));
}

TEST_CASE("closing ends those who accept and those who shake hands", "[connection][C5]") {
  fixture f;
  test::raw_peer halfway = f.dial();
  f.executor.run(say(halfway, greeting_bytes()));
  auto close = [&]() -> task<> {
    f.server->close();
    co_return;
  };
  auto [taken, closed] = f.executor.run(when_all(f.server->accept(), close()));
  CHECK_FALSE(taken);
  f.executor.run(f.server->all_ended.wait());
  CHECK_FALSE(f.executor.run(f.server->accept()));
}

TEST_CASE("a server that is closed refuses clients, and another may have its port at once",
          "[connection][N4]") {
  fixture f;
  f.executor.run(current_environment());  // The server waits in the kernel.
  f.server->close();
  CHECK_THROWS_WITH(f.dial(), Catch::Contains("nobody listens there"));
  CHECK_NOTHROW(stream_listener{f.executor, f.server->local_address(), 1});
}

TEST_CASE("listener options out of range are refused, both numbers named", "[connection][N9]") {
  CHECK_THROWS_WITH(check(listener_options{.handshakes_max = 0}),
                    Catch::Contains("handshakes_max 0 is not between 1 and 4096"));
  CHECK_THROWS_WITH(check(listener_options{.handshake_timeout = 0ms}),
                    Catch::Contains("handshake_timeout 0 ms"));
  CHECK_THROWS_WITH(check(listener_options{.ready_max = 0}), Catch::Contains("ready_max 0"));
  CHECK_THROWS_WITH(check(listener_options{.tcp_backlog = 0}), Catch::Contains("tcp_backlog 0"));
}

TEST_CASE("a listener logs what it cannot take, and why it has ended", "[connection]") {
  struct failing_acceptor final : detail::acceptor {
    task<std::unique_ptr<detail::arrival>> accept() override {
      if (++calls == 1) throw error{errno_failure(EMFILE, "accept4")};
      throw error{{.code = errc::device_failed, .call = "rdma_listen"}};
      co_return nullptr;
    }
    void close() noexcept override {}
    [[nodiscard]] socket_address local_address() const override {
      return socket_address::loopback(1);
    }
    int calls = 0;
  };
  manual_clock clock;
  cordma::executor executor{{.clock = &clock}};
  std::vector<std::string> lines;
  const detail::logger log{
      executor, {.hook = [&](const event_log::record& r) { lines.push_back(r.to_string()); }}};
  const std::unique_ptr<detail::listener_state, fixture::dropper> server{
      new detail::listener_state{executor, std::make_unique<failing_acceptor>(), {}, {}, &log}};
  executor.run(test::until(executor, [&] { return server->counters.accept_errors == 1; }));
  clock.advance(detail::listener_state::accept_pause);
  executor.run(server->all_ended.wait());
  REQUIRE(lines.size() == 2);
  CHECK_THAT(lines[0], Catch::Contains(" warning accept_failed local=127.0.0.1:1 why=\"accept4: "));
  CHECK_THAT(lines[1], Catch::Contains(" info listener_closed local=127.0.0.1:1 "
                                       "why=\"rdma_listen: device failed\""));
}

TEST_CASE("a listener whose door has ended is closed, and says why", "[connection]") {
  struct ended_acceptor final : detail::acceptor {
    task<std::unique_ptr<detail::arrival>> accept() override {
      throw error{{.code = errc::device_failed, .call = "rdma_listen"}};
      co_return nullptr;
    }
    void close() noexcept override {}
    [[nodiscard]] socket_address local_address() const override {
      return socket_address::loopback(1);
    }
  };
  cordma::executor executor;
  const std::unique_ptr<detail::listener_state, fixture::dropper> server{
      new detail::listener_state{executor, std::make_unique<ended_acceptor>(), {}, {}}};
  const auto waited = executor.run(as_result(with_timeout(server->accept_open(), 60s)));
  REQUIRE(waited.has_failure());
  CHECK(waited.failure().code == make_error_code(errc::device_failed));
  executor.run(server->all_ended.wait());
  const auto again = executor.run(as_result(server->accept_open()));
  CHECK(again.failure().code == make_error_code(errc::device_failed));
  CHECK(server->counters.accept_errors == 0);
}
