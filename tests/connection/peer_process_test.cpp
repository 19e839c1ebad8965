// A connection's peer is another process, and is killed.
#include <cordma/connection/connection.hpp>

#include "support/connected_pair.hpp"
#include "support/peer_process.hpp"
#include "support/soak.hpp"
#include "support/unreliable.hpp"
#include "support/until.hpp"

#include <cordma/base/unique_fd.hpp>
#include <cordma/connection/prepared_connection.hpp>
#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>

using namespace cordma;
using test::deaf;
using test::peer_process;

namespace {

unsigned shutdowns = 0;

}  // namespace

/// Called in place of the C library's, which it counts.
extern "C" int shutdown(int fd, int how) noexcept {
  ++shutdowns;
  return int(::syscall(SYS_shutdown, fd, how));
}

namespace {

/// Tells where its memory is, and then sends for ever.
task<> send_for_ever(runtime& rt, std::uint16_t port, const peer_process::port_teller&) {
  // The memory comes before the connection, so that a dying process gives it back after the queue
  // pair. Requests in flight are then not refused, but never answered.
  local_mr memory = rt.memory(test::all_access).allocate_zeroed(64);
  const endpoint server{"127.0.0.1", port};
  connection c = co_await rt.connect(server, deaf());
  const auto where = memory.remote_slice().encode();
  std::memcpy(memory.bytes().data(), where.data(), where.size());
  co_await c.send(memory.slice(0, where.size()));
  for (;;) co_await c.send(memory.slice(32, 8));
}

task<> be_idle(runtime& rt, std::uint16_t port, const peer_process::port_teller&) {
  const endpoint server{"127.0.0.1", port};
  connection c = co_await rt.connect(server, deaf());
  static_cast<void>(co_await c.next_message());
}

void tell(const unique_fd& to, const std::string& text) {
  if (::send(to.get(), text.data(), text.size(), 0) != ssize_t(text.size()))
    throw std::runtime_error{"the other process is gone"};
}

std::string told(const unique_fd& from) {
  std::string text(4096, '\0');
  text.resize(std::size_t(std::max<ssize_t>(::recv(from.get(), text.data(), text.size(), 0), 0)));
  return text;
}

/// Sends back what comes from the first client, and stays.
task<> echo_once(runtime& rt, std::uint16_t port, const peer_process::port_teller& tell) {
  listener acceptor = rt.listen({"127.0.0.1", port});
  tell(acceptor.local_endpoint().port);
  connection c = co_await acceptor.accept();
  local_mr memory = rt.memory().allocate_zeroed(64);
  const message m = co_await c.recv(memory.slice());
  co_await c.send(memory.slice(0, m.size_bytes));
  static_cast<void>(co_await c.next_message());
}

}  // namespace

TEST_CASE("the death of an idle peer's process is noticed at once",
          "[connection][device][C8][C2]") {
  peer_process peer{be_idle};
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {}, deaf());
  peer.start(acceptor.local_endpoint().port);
  connection c = rt.run(acceptor.accept());
  auto kill_it = [&]() -> task<> {
    peer.kill();
    co_return;
  };
  auto wait = [&]() -> task<std::error_code> {
    const auto m = co_await as_result(c.next_message());
    co_return m.has_failure() ? m.failure().code : std::error_code{};
  };
  auto [code, killed] = rt.run(when_all(wait(), kill_it()));
  CHECK(code == make_error_code(errc::disconnected));
  CHECK(c.why_lost()->call == std::string{"hang_up"});
}

TEST_CASE("a lost connection that is kept burns no CPU", "[connection][device][C8]") {
  peer_process peer{be_idle};
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {}, deaf());
  peer.start(acceptor.local_endpoint().port);
  connection c = rt.run(acceptor.accept());
  peer.kill();
  CHECK(rt.run(as_result(c.next_message())).has_failure());
  // Shutting a socket down makes it ready again: answering each time would never end.
  const unsigned before = shutdowns;
  for (int n = 0; n < 100; ++n) rt.run(test::due_timers_fired());
  CHECK(shutdowns - before <= 1);
}

TEST_CASE("over UC the heartbeat finds a peer's process that was killed, where no socket tells",
          "[connection][device][C8]") {
  std::array<int, 2> ends{-1, -1};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
  const unique_fd mine{ends[0]}, theirs{ends[1]};
  connection_options options = test::unreliable();
  options.heartbeat.interval = std::chrono::milliseconds{20};
  options.timeout = 10;
  peer_process peer{[&](runtime& rt, std::uint16_t, const peer_process::port_teller&) -> task<> {
    prepared_connection here = rt.prepare_connection(options);
    tell(theirs, here.info());
    connection c = co_await here.connect(told(theirs));
    static_cast<void>(co_await c.next_message());
  }};
  runtime rt{test::on_test_device()};
  prepared_connection here = rt.prepare_connection(options);
  peer.start(0);
  tell(mine, here.info());
  connection c = rt.run(here.connect(told(mine)));
  CHECK(c.is_open());
  peer.kill();
  const auto ended = rt.run(as_result(c.next_message()));
  REQUIRE(ended.has_failure());
  CAPTURE(ended.failure().to_string());
  CHECK((ended.failure().code == errc::disconnected ||
         ended.failure().code == wc_errc::retry_exceeded));
  CHECK_FALSE(c.was_closed_by_peer());
}

namespace {

/// Starts one operation after another until one fails; gives its error.
/// Starts the operation again and again, counting how often it ended well.
template <class Start>
task<std::error_code> until_lost(std::uint64_t& ended_well, Start start) {
  for (;;) {
    const auto outcome = co_await as_result(start());
    if (outcome.has_failure()) co_return outcome.failure().code;
    ++ended_well;
  }
}

/// Has all kinds of operations in flight with a peer that is killed after some have ended.
/// \param is_stuck  a send that nobody receives comes first: all others wait behind it.
void outlive_one_peer(std::uint64_t operations, bool is_stuck) {
  peer_process peer{send_for_ever};
  runtime rt{test::on_test_device()};
  local_mr memory = rt.memory().allocate_zeroed(256);
  listener acceptor = rt.listen({}, {}, deaf());
  peer.start(acceptor.local_endpoint().port);
  connection c = rt.run(acceptor.accept());
  const message hello = rt.run(c.recv(memory.slice(0, 64)));
  const auto remote = remote_mr_slice::decode(memory.bytes().first(hello.size_bytes));
  std::uint64_t ended = 0;
  auto kill = [&]() -> task<> {
    co_await test::until(rt.executor(), [&] { return ended >= operations; });
    peer.kill();
  };
  auto stuck = [&]() -> task<std::error_code> {
    if (!is_stuck) co_return make_error_code(errc::disconnected);
    const auto sent = co_await as_result(c.send(memory.slice(64, 64)));
    co_return sent.has_failure() ? sent.failure().code : std::error_code{};
  };
  const auto [a, b, d, e, f, killed] = rt.run(when_all(
      stuck(), until_lost(ended, [&] { return c.recv(memory.slice(0, 64)); }),
      until_lost(ended, [&] { return c.read(memory.slice(128, 16), remote.slice(0, 16)); }),
      until_lost(ended, [&] { return c.fetch_add(remote.slice(40, 8), 1); }),
      until_lost(ended,
                 [&] {
                   return c.post_all(write(memory.slice(192, 8), remote.slice(48, 8)),
                                     write(memory.slice(200, 8), remote.slice(56, 8)));
                 }),
      kill()));
  for (const std::error_code& code : {a, b, d, e, f}) {
    CHECK(code == make_error_code(errc::disconnected));
  }
  CHECK(c.why_lost()->call == std::string{"hang_up"});
}

}  // namespace

TEST_CASE("a busy peer that is killed at any moment leaves nobody waiting",
          "[.soak-kill][connection][device][C2][C8]") {
  std::mt19937_64 random{test::soak::seed()};
  for (std::uint64_t n = test::soak::count(10'000); n > 0; --n) {
    if (n % 2 == 0) {
      outlive_one_peer(0, true);
    } else {
      outlive_one_peer(random() % 1000, false);
    }
  }
}

TEST_CASE("a busy peer that is killed leaves nobody waiting", "[connection][device][C2][C8]") {
  SECTION("it answers until then") { outlive_one_peer(100, false); }
  SECTION("it does not take what comes") { outlive_one_peer(0, true); }
}

TEST_CASE("a server process that was killed and started again can be reconnected to",
          "[connection][device][N6]") {
  peer_process servers[] = {peer_process{echo_once}, peer_process{echo_once},
                            peer_process{echo_once}};
  runtime rt{test::on_test_device()};
  local_mr memory = rt.memory().allocate_zeroed(64);
  std::uint16_t port = 0;  // The kernel's choice first; the restarted ones must take the same.
  for (peer_process& server : servers) {
    server.start(port);
    port = server.told_port();
    connection c = rt.run(rt.connect({"127.0.0.1", port}));
    auto [answer, sent] =
        rt.run(when_all(c.recv(memory.slice(0, 32)), c.send(memory.slice(32, 5))));
    CHECK(answer.size_bytes == 5);
    server.kill();
    const auto lost = rt.run(as_result(c.next_message()));
    REQUIRE(lost.has_failure());
    CHECK(lost.failure().code == make_error_code(errc::disconnected));
    CHECK(lost.failure().remedy() == failure::remedy_kind::reconnect);
    const auto refused = rt.run(as_result(rt.connect({"127.0.0.1", port})));
    REQUIRE(refused.has_failure());
    // The kernel ends a dead process's ring, which may hold the listener, after the process. Until
    // then a connection is taken, and then reset.
    CAPTURE(refused.failure().to_string());
    CHECK((refused.failure().code == std::errc::connection_refused ||
           refused.failure().code == std::errc::connection_reset));
  }
}
