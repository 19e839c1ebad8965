// Liveness: what a connection notices by itself.
#include <cordma/connection/connection.hpp>

#include "support/connected_pair.hpp"
#include "support/soak.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <csignal>
#include <random>

#include <sys/wait.h>
#include <unistd.h>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;

namespace {

connection_options beating(std::chrono::milliseconds interval, unsigned misses) {
  connection_options o;
  o.heartbeat = {.interval = interval, .misses = misses};
  o.close_deadline = 200ms;
  return o;
}

connection_options not_beating() {
  connection_options o;
  o.heartbeat.enabled = false;
  o.close_deadline = 200ms;
  return o;
}

/// The peer's host is gone, as far as its device goes: nothing answers, and the socket says
/// nothing.
void die_silently(connection& c) { c.qp().verbs().to_reset(); }

/// Ends with the receive that waits, or with `errc::timed_out`.
std::error_code end_of_wait(runtime& rt, connection& c, duration limit) {
  const auto m = rt.run(as_result(with_timeout(c.next_message(), limit)));
  return m.has_failure() ? m.failure().code : std::error_code{};
}

enum class peer_is { idle, busy };

/// A process that connects and then waits, or sends for ever. Made before the runtime of this one:
/// a fork copies no device.
class peer_process {
 public:
  explicit peer_process(peer_is what) {
    REQUIRE(::pipe(pipe_) == 0);
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) ::_exit(be_a_client(what));
  }
  peer_process(const peer_process&) = delete;
  peer_process& operator=(const peer_process&) = delete;
  ~peer_process() {
    kill();
    ::close(pipe_[0]);
    ::close(pipe_[1]);
  }
  void connect_to(const endpoint& server) {
    REQUIRE(::write(pipe_[1], &server.port, sizeof server.port) == sizeof server.port);
  }
  void kill() noexcept {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }

 private:
  int be_a_client(peer_is what) noexcept {
    try {
      std::uint16_t port = 0;
      if (::read(pipe_[0], &port, sizeof port) != sizeof port) return 1;
      runtime rt{test::on_test_device()};
      rt.run(live(rt, {"127.0.0.1", port}, what));
      return 0;
    } catch (const std::exception&) {
      return 2;
    }
  }
  static task<> live(runtime& rt, endpoint server, peer_is what) {
    connection c = co_await rt.connect(server);
    local_mr memory = rt.memory().allocate_zeroed(64);
    while (what == peer_is::busy) co_await c.send(memory.slice());
    static_cast<void>(co_await c.next_message());
  }

  int pipe_[2] = {-1, -1};
  pid_t pid_ = 0;
};

}  // namespace

TEST_CASE("the death of an idle peer's process is noticed at once",
          "[connection][device][C8][C2]") {
  peer_process peer{peer_is::idle};
  runtime rt{test::on_test_device()};
  listener door = rt.listen();
  peer.connect_to(door.local_endpoint());
  connection c = rt.run(door.accept());
  time_point died{};
  auto kill_it = [&]() -> task<> {
    co_await sleep_for(20ms);  // It waits by now; correct either way.
    died = rt.executor().now();
    peer.kill();
  };
  auto wait = [&]() -> task<std::error_code> {
    const auto m = co_await as_result(c.next_message());
    co_return m.has_failure() ? m.failure().code : std::error_code{};
  };
  auto [code, killed] = rt.run(when_all(wait(), kill_it()));
  CHECK(code == make_error_code(errc::disconnected));
  CHECK(rt.executor().now() - died < 1s);
  CHECK(c.why_lost()->call == std::string{"hang_up"});
}

TEST_CASE("a heartbeat finds a dead host, by the retries of its device",
          "[connection][device][C8]") {
  connected_pair p{{}, beating(50ms, 100), not_beating()};
  die_silently(p.server);
  const time_point start = p.rt.executor().now();
  CHECK(end_of_wait(p.rt, p.client, 10s) == make_error_code(wc_errc::retry_exceeded));
  CHECK(p.rt.executor().now() - start < 5s);
}

TEST_CASE("a heartbeat finds a dead host, by its misses, when the device retries for long",
          "[connection][device][C8]") {
  connection_options slow = beating(30ms, 3);
  slow.timeout = 20;  // 34 s in all.
  connected_pair p{{}, slow, not_beating()};
  die_silently(p.server);
  const time_point start = p.rt.executor().now();
  CHECK(end_of_wait(p.rt, p.client, 10s) == make_error_code(errc::disconnected));
  CHECK(p.client.why_lost()->call == std::string{"heartbeat"});
  CHECK(p.rt.executor().now() - start < 1s);
}

TEST_CASE("without a heartbeat an idle connection to a dead host goes unnoticed",
          "[connection][device][C8]") {
  connected_pair p{{}, not_beating(), not_beating()};
  die_silently(p.server);
  CHECK(end_of_wait(p.rt, p.client, 300ms) == make_error_code(errc::timed_out));
  CHECK(p.client.is_open());
}

TEST_CASE("an idle connection beats for as long as it lives, and a busy one does not",
          "[connection][device][C8]") {
  connected_pair p{{}, beating(10ms, 3), not_beating()};
  SECTION("idle") {
    p.rt.run(p.rt.executor().sleep_for(200ms));
    CHECK(p.client.is_open());
    CHECK(p.client.qp().sends().posted_total() >= 3);
    CHECK(p.client.qp().sends().posted_total() <= 21);
    CHECK(p.server.qp().sends().posted_total() == 0);
  }
  SECTION("busy") {
    local_mr memory = p.rt.memory().allocate_zeroed(64, test::all_access);
    std::uint32_t writes = 0;
    auto work = [&]() -> task<> {
      const time_point end = p.rt.executor().now() + 100ms;
      for (; p.rt.executor().now() < end; ++writes) {
        co_await p.client.write(memory.slice(0, 8), memory.remote_slice().slice(8, 8));
      }
    };
    p.rt.run(work());
    CHECK(p.client.qp().sends().posted_total() - writes <= 5);
  }
}

TEST_CASE("a peer that grants no writes gets no heartbeat", "[connection][device][C8]") {
  connection_options grants_nothing = not_beating();
  grants_nothing.remote_access = verbs::access::none;
  connected_pair p{{}, beating(5ms, 1), grants_nothing};
  p.rt.run(p.rt.executor().sleep_for(50ms));
  CHECK(p.client.is_open());
  CHECK(p.client.qp().sends().posted_total() == 0);
}

TEST_CASE("in manual mode a connection closes without anybody polling",
          "[connection][device][C3]") {
  connected_pair p{{.mode = completion_mode::manual}, beating(5ms, 1), beating(5ms, 1)};
  local_mr memory = p.rt.memory().allocate_zeroed(64);
  p.server.post_recv(memory.slice(0, 8));
  p.rt.run(p.rt.executor().sleep_for(50ms));
  CHECK(p.client.is_open());
  const time_point start = p.rt.executor().now();
  p.client = {};
  p.rt.run(current_environment());
  CHECK(p.rt.executor().now() - start < 1s);
}

namespace {

/// Receives all there is, and sends what nobody receives, until the peer is killed after `life`.
void outlive_one_peer(duration life) {
  peer_process peer{peer_is::busy};
  runtime rt{test::on_test_device()};
  listener door = rt.listen();
  peer.connect_to(door.local_endpoint());
  connection c = rt.run(door.accept());
  local_mr memory = rt.memory().allocate_zeroed(256);
  auto receive = [&]() -> task<> {
    for (;;) {
      const auto m = co_await as_result(c.recv(memory.slice(0, 64)));
      if (!m.has_value()) co_return;
    }
  };
  auto send = [&]() -> task<> {
    const auto sent = co_await as_result(c.send(memory.slice(64, 64)));
    CHECK(sent.has_failure());
  };
  time_point died{};
  auto kill = [&]() -> task<> {
    co_await sleep_for(life);
    died = rt.executor().now();
    peer.kill();
  };
  rt.run(when_all(receive(), send(), kill()));
  CHECK(rt.executor().now() - died < 2s);
  CHECK_FALSE(c.is_open());
}

}  // namespace

TEST_CASE("a busy peer that is killed at any moment leaves nobody waiting",
          "[.soak-kill][connection][device][C2][C8]") {
  std::mt19937_64 random{test::soak::seed()};
  for (std::uint64_t n = test::soak::count(1000); n > 0; --n) {
    outlive_one_peer(std::chrono::microseconds{random() % 30'000});
  }
}

TEST_CASE("a busy peer that is killed leaves nobody waiting", "[connection][device][C2][C8]") {
  outlive_one_peer(5ms);
}
