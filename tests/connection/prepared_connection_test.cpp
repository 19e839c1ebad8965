#include <cordma/connection/prepared_connection.hpp>

#include "support/connected_pair.hpp"
#include "support/leaks.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// Two connections by information that the test carries.
struct carried_pair {
  explicit carried_pair(const connection_changes& changes = {})
      : one{rt.prepare_connection(changes)}, other{rt.prepare_connection(changes)} {
    auto [a, b] = rt.run(when_all(one.connect(other.info()), other.connect(one.info())));
    client = std::move(a);
    server = std::move(b);
  }
  runtime rt{test::on_test_device()};
  prepared_connection one;
  prepared_connection other;
  connection client;
  connection server;
};

template <class Op>
failure failure_of(runtime& rt, Op&& op) {
  const auto outcome = rt.run(as_result(std::forward<Op>(op)));
  return outcome.has_failure() ? outcome.failure() : failure{};
}

}  // namespace

TEST_CASE("two sides that exchange texts get a connection with its agents",
          "[connection][device]") {
  carried_pair p;
  local_mr memory = p.client.memory().allocate_zeroed(16);
  const auto [m, sent] =
      p.rt.run(when_all(p.server.recv(memory.slice(0, 8)), p.client.send(memory.slice(8, 8))));
  CHECK(m.size_bytes == sent);
  CHECK(p.client.has_agent());
  loan lent = p.rt.run(p.server.send_local_mr(p.server.memory().allocate_zeroed(64)));
  const remote_mr borrowed = p.rt.run(p.client.receive_remote_mr());
  CHECK(borrowed.size_bytes() == 64);
}

TEST_CASE("whichever side connects first, both are done in one exchange", "[connection][device]") {
  connection_options options;
  options.timeout = 31;  // Hours: nothing is sent again because of it.
  runtime rt{test::on_test_device()};
  prepared_connection early = rt.prepare_connection(options);
  prepared_connection late = rt.prepare_connection(options);
  const auto frames = [&] { return rt.metrics().transfer.of(request_kind::agent_send).posted; };
  const auto second = [&](std::string text) -> task<connection> {
    // The early side's first frame finds a queue pair that takes nothing yet.
    CHECK(frames() == 1);
    co_return co_await late.connect(text);
  };
  const auto [a, b] = rt.run(when_all(early.connect(late.info()), second(early.info())));
  CHECK(a.is_open());
  CHECK(b.is_open());
  CHECK(frames() == 4);  // Each side sends a proof and the frame after it.
}

TEST_CASE("a connection by information closes in both directions", "[connection][device]") {
  carried_pair p;
  const auto close_when_told = [&]() -> task<> {
    static_cast<void>(co_await as_result(p.server.next_message()));
    co_await p.server.close();
  };
  p.rt.run(when_all(p.client.close(), close_when_told()));
  CHECK(p.server.was_closed_by_peer());
  CHECK_FALSE(p.client.is_open());
}

TEST_CASE("a peer that is dropped is found out by the heartbeat", "[connection][device]") {
  const bool has_writes = GENERATE(true, false);
  connection_options options;
  options.heartbeat.interval = 20ms;
  // 4 ms a try, or hours: the device then finds out nothing.
  options.timeout = GENERATE(std::uint8_t{10}, std::uint8_t{31});
  if (!has_writes) options.remote_access = verbs::access::remote_read;
  options.connect_timeout = 20ms;
  carried_pair p{options};
  p.client = {};
  const failure why = failure_of(p.rt, p.server.next_message());
  CHECK((why.code == errc::disconnected || why.code == wc_errc::retry_exceeded));
  CHECK_FALSE(p.server.is_open());
  CHECK_FALSE(p.server.was_closed_by_peer());
}

TEST_CASE("each side of information is good once", "[connection][device][N2]") {
  carried_pair p;
  const std::string before = test::holdings();
  const std::string another = p.rt.prepare_connection().info();
  CHECK_THAT(failure_of(p.rt, p.one.connect(another)).to_string(),
             Catch::Contains("this prepared connection was used already"));
  CHECK_THROWS_WITH(p.one.info(), Catch::Contains("this prepared connection was used already"));
  CHECK_THROWS_WITH(p.one.plain_info(), Catch::Contains("was used already"));
  prepared_connection third = p.rt.prepare_connection();
  prepared_connection fourth = p.rt.prepare_connection();
  const std::string theirs = fourth.info();
  {
    auto [a, b] = p.rt.run(when_all(third.connect(theirs), fourth.connect(third.info())));
    prepared_connection fifth = p.rt.prepare_connection();
    const failure twice = failure_of(p.rt, fifth.connect(theirs));
    CHECK(twice.code == make_error_code(errc::refused));
    CHECK_THAT(twice.to_string(), Catch::Contains("the peer's information was used already"));
  }
}

TEST_CASE("information of this side itself, or damaged, is refused", "[connection][device][N2]") {
  runtime rt{test::on_test_device()};
  {
    prepared_connection mine = rt.prepare_connection();
    CHECK_THAT(failure_of(rt, mine.connect(mine.info())).to_string(),
               Catch::Contains("this side's own"));
  }
  prepared_connection mine = rt.prepare_connection();
  CHECK(failure_of(rt, mine.connect("hello")).code == make_error_code(errc::bad_handshake));
}

TEST_CASE("in manual mode a program that polls meanwhile gets a connection by information",
          "[connection][device]") {
  runtime rt{test::on_test_device({.cq = {.mode = completion_mode::manual}})};
  prepared_connection one = rt.prepare_connection();
  prepared_connection other = rt.prepare_connection();
  bool is_connected = false;
  const auto connect = [&]() -> task<> {
    auto [a, b] = co_await when_all(one.connect(other.info()), other.connect(one.info()));
    is_connected = a.is_open() && b.is_open();
  };
  const auto poll = [&]() -> task<> {
    while (!is_connected) {
      rt.poll();
      co_await rt.executor().sleep_for({});
    }
  };
  rt.run(when_all(connect(), poll()));
  CHECK(is_connected);
}

TEST_CASE("information is good for 60 s", "[connection][device]") {
  manual_clock clock;
  runtime rt{test::on_test_device(test::by_hand(clock))};
  prepared_connection mine = rt.prepare_connection();
  prepared_connection other = rt.prepare_connection();
  clock.advance(prepared_connection::lifetime);
  const failure late = failure_of(rt, mine.connect(other.info()));
  CHECK(late.code == make_error_code(errc::timed_out));
  CHECK_THAT(late.to_string(), Catch::Contains("more than 60 s ago"));
}

TEST_CASE("a peer that connects by other information, or not at all, is not waited for for ever",
          "[connection][device][N4]") {
  connection_options options;
  options.connect_timeout = 50ms;
  options.timeout = 10;
  runtime rt{test::on_test_device()};
  prepared_connection mine = rt.prepare_connection(options);
  prepared_connection silent = rt.prepare_connection(options);
  prepared_connection elsewhere = rt.prepare_connection(options);
  const std::string of_mine = mine.info();
  const failure why = failure_of(rt, mine.connect(silent.info()));
  CHECK(why.code == make_error_code(errc::timed_out));
  CHECK_THAT(why.to_string(),
             Catch::Contains("does it connect by this side's present information"));
  // The other side has given up, and hears nothing.
  CHECK(failure_of(rt, elsewhere.connect(of_mine)).code != std::error_code{});
}

TEST_CASE("what the text cannot say is refused when it is prepared", "[connection][device]") {
  runtime rt{test::on_test_device()};
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  CHECK_THROWS_WITH(rt.prepare_connection({.credentials = &key}),
                    Catch::Contains("the way that the information goes"));
  const prepared_connection no_agent = rt.prepare_connection({.agent = {{.enabled = false}}});
  CHECK_THROWS_WITH(no_agent.info(), Catch::Contains("or use plain_info"));
}

TEST_CASE("two plain queue pairs are connected by their numbers", "[connection][device]") {
  runtime rt{test::on_test_device()};
  prepared_connection one = rt.prepare_connection();
  prepared_connection other = rt.prepare_connection();
  auto [a, b] = rt.run(
      when_all(one.connect_plain(other.plain_info()), other.connect_plain(one.plain_info())));
  CHECK_FALSE(a.has_agent());
  local_mr memory = rt.memory().allocate_zeroed(16);
  const auto [m, sent] = rt.run(when_all(b.recv(memory.slice(0, 8)), a.send(memory.slice(8, 8))));
  CHECK(m.size_bytes == sent);
  rt.run(a.close());
  CHECK_FALSE(a.is_open());
}

TEST_CASE("a prepared connection that nobody uses leaves nothing", "[connection][device][C5]") {
  test::connected_pair p;
  const std::string before = test::holdings();
  {
    const prepared_connection mine = p.rt.prepare_connection();
    CHECK_FALSE(mine.info().empty());
    CHECK(mine.plain_info().qpn != 0);
  }
  CHECK(test::holdings() == before);
}
