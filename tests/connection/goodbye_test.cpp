// How a connection ends when its peer says goodbye first, and when it does not.
#include <cordma/connection/connection.hpp>

#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"
#include "support/connected_pair.hpp"
#include "support/connection_socket.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

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
connection_options persistent(std::chrono::milliseconds deadline) {
  connection_options o;
  o.min_rnr_timer = 31;
  o.close_timeout = deadline;
  return o;
}

/// A client with a send in flight that its peer has no receive for, both on a clock that stands
/// still: whoever waits for a time waits until the test turns it.
struct waiting_pair {
  manual_clock clock;
  test::connected_pair both{on(clock), persistent(close_timeout), persistent(1h)};
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
    p.server.post_recv(p.memory.slice(8, 8));
    const auto outcome = co_await as_result(p.sent);
    CHECK(outcome.has_value());
    const send_queue& sends = p.client.qp().sends();
    co_await test::until(p.both.rt.executor(), [&] { return sends.is_idle(); });
    p.clock.advance(1ms);  // The client looks whether anything is owed still.
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
