// How a connection ends when its peer says goodbye first, and when it does not.
#include <cordma/connection/connection.hpp>

#include "agent/agent.hpp"
#include "last_message.hpp"
#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"
#include "support/connected_pair.hpp"
#include "support/connection_socket.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

constexpr std::chrono::milliseconds close_timeout{100};  // Sooner than a heartbeat.

runtime_options on(const manual_clock& clock) {
  runtime_options o;
  o.executor.clock = &clock;
  return o;
}

/// The device tries for 3.4 s to deliver what meets no receive.
connection_options persistent(std::chrono::milliseconds deadline, const credentials* used) {
  connection_options o;
  o.credentials = used;
  o.min_rnr_timer = 31;
  o.close_timeout = deadline;
  return o;
}

/// A client with a send in flight that its peer has no receive for. The clock of both moves only
/// when the test moves it.
struct waiting_pair {
  explicit waiting_pair(const credentials* used = nullptr)
      : both{on(clock), persistent(close_timeout, used), persistent(1h, used)} {}

  manual_clock clock;
  test::connected_pair both;
  connection& client = both.client;
  connection& server = both.server;
  local_mr memory = both.rt.memory().allocate_zeroed(64);
  decltype(client.post(send(memory.slice()))) sent = client.post(send(memory.slice(0, 8)));

  /// The client noticed the end of the stream: it posts a WRITE of its own then, or gives up.
  auto stream_ended() {
    return test::until(both.rt.executor(), [this] {
      return client.qp().sends().posted_total() > 1 || !client.is_open();
    });
  }
  /// The server acknowledges the client's send, and the client looks whether anything is owed.
  task<> acknowledge() {
    server.post_recv(memory.slice(8, 8));
    const auto outcome = co_await as_result(sent);
    CHECK(outcome.has_value());
    const send_queue& sends = client.qp().sends();
    co_await test::until(both.rt.executor(), [&] { return sends.is_idle(); });
    clock.advance(1ms);
  }
  /// The server's words, until the client has read them.
  void say(std::string_view words) {
    const int from = test::socket_of(server);
    const int to = test::socket_of(client);
    REQUIRE(::send(from, words.data(), words.size(), MSG_NOSIGNAL) == ssize_t(words.size()));
    pollfd arrival{.fd = to, .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&arrival, 1, -1) == 1);
    both.rt.run(test::until(both.rt.executor(), [to] {
      int unread = -1;
      return ::ioctl(to, FIONREAD, &unread) == 0 && unread == 0;
    }));
  }
};

}  // namespace

TEST_CASE("what a peer acknowledges after its goodbye ends with its own outcome",
          "[connection][device][C2]") {
  waiting_pair p;
  auto acknowledge_late = [&]() -> task<> {
    co_await p.stream_ended();
    co_await p.acknowledge();
  };
  p.both.rt.run(when_all(p.server.close(), acknowledge_late()));
  REQUIRE_FALSE(p.client.is_open());
  CHECK(p.client.why_lost()->code == make_error_code(errc::disconnected));
  CHECK(p.client.why_lost()->call == std::string{"hang_up"});
}

TEST_CASE("what a peer does not acknowledge after its goodbye ends at close_timeout",
          "[connection][device][C2]") {
  waiting_pair p;
  auto pass_time = [&]() -> task<> {
    co_await p.stream_ended();
    p.clock.advance(close_timeout - 1ms);
    co_await test::due_timers_fired();
    CHECK_FALSE(p.sent.has_ended());
    CHECK(p.client.is_open());
    p.clock.advance(1ms);
    const auto outcome = co_await as_result(p.sent);
    REQUIRE(outcome.has_failure());
    CHECK(outcome.failure().code == make_error_code(errc::disconnected));
  };
  p.both.rt.run(when_all(p.server.close(), pass_time()));
  REQUIRE_FALSE(p.client.is_open());
  CHECK(p.client.why_lost()->call == std::string{"hang_up"});
}

TEST_CASE("an end of the stream without a goodbye ends everything at once",
          "[connection][device][C2]") {
  waiting_pair p;
  p.server = {};
  const auto outcome = p.both.rt.run(as_result(p.sent));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == make_error_code(errc::disconnected));
  CHECK(p.client.why_lost()->call == std::string{"hang_up"});
}

TEST_CASE("a goodbye ends nothing before the end of the stream", "[connection][device][C2]") {
  waiting_pair p;
  p.say(".");
  p.clock.advance(2 * close_timeout);
  p.both.rt.run(test::due_timers_fired());
  CHECK(p.client.is_open());
  p.server.post_recv(p.memory.slice(8, 8));
  CHECK(p.both.rt.run(as_result(p.sent)).has_value());
  CHECK(p.client.is_open());
}

TEST_CASE("a peer that talks on after its goodbye loses its connection", "[connection][device]") {
  waiting_pair p;
  SECTION("at once") { p.say(".x"); }
  SECTION("later") {
    p.say(".");
    CHECK(p.client.is_open());
    p.say("x");
  }
  SECTION("to say it again") {
    p.say(".");
    p.say(".");
  }
  const auto outcome = p.both.rt.run(as_result(p.sent));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == make_error_code(errc::bad_handshake));
  CHECK(p.client.why_lost()->call == std::string{"recv after the handshake"});
}

TEST_CASE("a close that was stopped after its goodbye may be followed by another, with TLS or not",
          "[connection][device]") {
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  for (const credentials* used : {static_cast<const credentials*>(nullptr), &key}) {
    waiting_pair p{used};
    p.both.rt.run(when_any(p.server.close(), p.stream_ended()));
    CHECK(p.client.was_closed_by_peer());
    CHECK(p.client.is_open());
    CHECK(p.server.is_open());
    p.both.rt.run(when_all(p.server.close(), p.acknowledge()));
    CHECK(p.client.why_lost()->call == std::string{"hang_up"});
    CHECK_FALSE(p.server.is_open());
  }
}

TEST_CASE("with a key, only a goodbye within TLS is a close: all other ends are deaths",
          "[connection][device][C2]") {
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  waiting_pair p{&key};
  const int fd = test::socket_of(p.server);
  const sockaddr nowhere{.sa_family = AF_UNSPEC, .sa_data = {}};
  SECTION("a goodbye in the clear") { p.say("."); }
  SECTION("a goodbye in the clear, and the end of the stream") {
    REQUIRE(::send(fd, ".", 1, 0) == 1);  // The client must not hang up between the two.
    REQUIRE(::shutdown(fd, SHUT_WR) == 0);
  }
  SECTION("the stream's end without TLS's") { REQUIRE(::shutdown(fd, SHUT_WR) == 0); }
  SECTION("a reset") { REQUIRE(::connect(fd, &nowhere, sizeof nowhere) == 0); }
  SECTION("TLS's end without a goodbye") { p.server = {}; }
  const auto outcome = p.both.rt.run(as_result(p.sent));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == make_error_code(errc::disconnected));
  CHECK(p.client.why_lost()->call == std::string{"hang_up"});
  CHECK_FALSE(p.client.was_closed_by_peer());
}

// A device may acknowledge a message before it completes the receive: the peer then says goodbye
// while the completion is on its way.
TEST_CASE("what the device has taken until the peer's end is received", "[connection][soft0]") {
  test::connected_pair both;
  local_mr memory = both.rt.memory().allocate_zeroed(64);
  both.server.post_recv(memory.slice(8, 8));
  const test::last_message last{both.client, memory.slice(0, 8)};
  ::shutdown(test::socket_of(both.client), SHUT_WR);
  CHECK(both.rt.run(both.server.next_message()).size_bytes == 8);
  CHECK(both.rt.run(as_result(both.server.next_message())).failure().code == errc::disconnected);
  CHECK(both.server.why_lost()->call == std::string{"hang_up"});
}

TEST_CASE("what the device has taken until the agents' queue pair breaks is received",
          "[connection][soft0]") {
  test::connected_pair both;
  local_mr memory = both.rt.memory().allocate_zeroed(64);
  both.server.post_recv(memory.slice(8, 8));
  both.server.agent()->control().abort({.code = errc::disconnected, .call = "test"});
  const test::last_message last{both.client, memory.slice(0, 8)};
  CHECK(both.rt.run(both.server.next_message()).size_bytes == 8);
  CHECK(both.rt.run(as_result(both.server.next_message())).failure().code == errc::disconnected);
  CHECK(both.server.why_lost()->call == std::string{"agent"});
}
