// Liveness: what a connection notices by itself.
#include <cordma/connection/connection.hpp>

#include "connection/bootstrap.hpp"
#include "connection/connection_state.hpp"
#include "connection/shake_hands.hpp"
#include "io/stream_channel.hpp"
#include "queue/send_queue.hpp"
#include "request/queue_pair.hpp"
#include "support/connected_pair.hpp"
#include "support/connection_socket.hpp"
#include "support/skip.hpp"
#include "support/until.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <span>
#include <thread>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;

namespace {

connection_options beating(std::chrono::milliseconds interval, unsigned misses) {
  connection_options o;
  o.heartbeat = {.interval = interval, .misses = misses};
  o.close_timeout = 200ms;
  return o;
}

connection_options not_beating() {
  connection_options o;
  o.heartbeat.enabled = false;
  o.close_timeout = 200ms;
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

}  // namespace

TEST_CASE("a heartbeat finds a dead host, by the retries of its device",
          "[connection][device][C8]") {
  connected_pair p{{}, beating(50ms, 1000), not_beating()};
  die_silently(p.server);
  CHECK(end_of_wait(p.rt, p.client, 60s) == make_error_code(wc_errc::retry_exceeded));
}

TEST_CASE("a heartbeat finds a dead host, by its misses, when the device retries for long",
          "[connection][device][C8]") {
  connection_options slow = beating(30ms, 3);
  slow.timeout = 20;  // 34 s in all.
  connected_pair p{{}, slow, not_beating()};
  die_silently(p.server);
  CHECK(end_of_wait(p.rt, p.client, 60s) == make_error_code(errc::disconnected));
  CHECK(p.client.why_lost()->call == std::string{"heartbeat"});
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
  constexpr auto interval = 10ms;
  const time_point start = time_source::monotonic().now();
  connected_pair p{{}, beating(interval, 1000), not_beating()};
  const send_queue& sends = p.client.qp().sends();
  SECTION("idle") {
    p.rt.run(test::until(p.rt.executor(), [&] { return sends.posted_total() >= 3; }));
    CHECK(p.client.is_open());
    CHECK(sends.posted_total() <= (p.rt.executor().now() - start) / interval);
    CHECK(p.server.qp().sends().posted_total() == 0);
  }
  SECTION("busy") {
    local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
    auto work = [&]() -> task<> {
      // Always one in flight when a tick looks: a coroutine goes on before timers fire.
      const std::uint32_t before = sends.posted_total();
      const time_point end = p.rt.executor().now() + 10 * interval;
      std::uint32_t writes = 0;
      for (; p.rt.executor().now() < end; ++writes) {
        co_await p.client.write(memory.slice(0, 8), memory.remote_slice().slice(8, 8));
      }
      CHECK(sends.posted_total() - before == writes);
    };
    p.rt.run(work());
  }
}

namespace {

unsigned rights_of(cordma::queue_pair& qp) {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  REQUIRE(::ibv_query_qp(qp.verbs().native_handle(), &attributes, IBV_QP_ACCESS_FLAGS, &initial) ==
          0);
  return attributes.qp_access_flags;
}

}  // namespace

TEST_CASE("where there are credentials, a peer may do nothing before it has proved who it is",
          "[connection][device][N2]") {
  runtime rt{test::on_test_device()};
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  connection_options options;
  const auto here = socket_address::loopback(0);
  detail::connection_state open{rt.resources(), options, here, here};
  options.credentials = &key;
  detail::connection_state mine{rt.resources(), options, here, here};
  detail::connection_state peer{rt.resources(), options, here, here};
  const unsigned wanted = rights_of(open.qp);
  CHECK((wanted & IBV_ACCESS_REMOTE_WRITE) != 0);
  CHECK(rights_of(mine.qp) == 0);
  agent_protocol::payload proof{};
  proof[0] = std::byte{1};
  mine.agree(peer.local_hello, handshake::side::listener, proof);
  peer.agree(mine.local_hello, handshake::side::client);
  CHECK(mine.qp.verbs().query_state() == verbs::queue_pair_state::rts);
  CHECK(rights_of(mine.qp) == 0);
  peer.agent->send_proof(proof);
  rt.run(mine.proved());
  CHECK(rights_of(mine.qp) == wanted);
}

namespace {

/// The host of this side is switched off: it forgets the socket and says nothing.
void forget_silently(const connection& side) {
  const int fd = test::socket_of(side);
  const int on = 1;
  REQUIRE(::setsockopt(fd, IPPROTO_TCP, TCP_REPAIR, &on, sizeof on) == 0);
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  REQUIRE(::connect(fd, &nobody, sizeof nobody) == 0);
}

/// Has the kernel send what it would acknowledge later, and waits until both sides' words arrived.
void acknowledge_all(const connection& one, const connection& other) {
  const int fds[] = {test::socket_of(one), test::socket_of(other)};
  const int on = 1;
  for (const int fd : fds) {
    REQUIRE(::setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on) == 0);
  }
  for (const int fd : fds) {
    for (int unacknowledged = 1; unacknowledged > 0; std::this_thread::yield()) {
      REQUIRE(::ioctl(fd, TIOCOUTQ, &unacknowledged) == 0);
    }
  }
}

}  // namespace

TEST_CASE("the dead host of a peer that grants no writes is found by TCP, without a WRITE",
          "[connection][device][C8]") {
  if (::geteuid() != 0) CORDMA_SKIP("only root can make TCP forget a socket");
  connection_options grants_nothing = not_beating();
  grants_nothing.remote_access = verbs::access::none;
  connected_pair p{{}, beating(5ms, 1), grants_nothing};
  // Bytes of the handshake that are not acknowledged would find that the socket is gone, too.
  acknowledge_all(p.client, p.server);
  forget_silently(p.server);
  CHECK(end_of_wait(p.rt, p.client, 60s) == make_error_code(errc::disconnected));
  CHECK(p.client.why_lost()->call == std::string{"hang_up"});
  CHECK(p.client.qp().sends().posted_total() == 0);
}

TEST_CASE("in manual mode a connection closes without anybody polling",
          "[connection][device][C3]") {
  // The clock stands still: a task that waits for a time waits until the test turns the clock.
  manual_clock clock;
  runtime_options options{.cq = {.mode = completion_mode::manual}};
  options.executor.clock = &clock;
  connected_pair p{std::move(options), beating(5ms, 1), beating(5ms, 1)};
  local_mr memory = p.rt.memory().allocate_zeroed(64);
  p.server.post_recv(memory.slice(0, 8));
  // The first ticks post beats, the second ones find them without an answer.
  for (int tick = 0; tick < 2; ++tick) {
    clock.advance(5ms);
    p.rt.run(test::due_timers_fired());
  }
  CHECK(p.client.qp().sends().posted_total() == 1);
  CHECK(p.server.qp().sends().posted_total() == 1);
  CHECK(p.client.is_open());
  CHECK(p.server.is_open());
  p.client = {};
  p.rt.run(current_environment());  // The connection goes now: at no deadline.
}

namespace {

/// A socket's bytes, whose kernel cannot probe the peer.
class unprobed final : public byte_channel, private byte_channel::listener {
 public:
  explicit unprobed(stream_socket socket)
      : byte_channel{socket.executor()}, below_{std::move(socket)} {
    below_.listen(this);
  }
  std::optional<std::size_t> try_read(std::span<std::byte> into) override {
    return below_.try_read(into);
  }
  std::size_t try_write(std::span<const std::byte> from) override { return below_.try_write(from); }
  void end_writing() noexcept override { below_.end_writing(); }
  void keep_alive(time_span /*interval*/, unsigned /*probes*/) override {
    throw error{errno_failure(ENOPROTOOPT, "setsockopt")};
  }

 private:
  void on_channel_change() noexcept override { tell_change(); }
  stream_channel below_;
};

}  // namespace

TEST_CASE("a connection that cannot be watched is refused on the channel that it did not take",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::array<int, 2> fds{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds.data()) == 0);
  stream_socket socket{rt.executor(), unique_fd{fds[1]}};
  const socket_address local = socket.local_address();
  const socket_address peer = socket.peer_address();
  detail::link peer_link{local, peer, std::make_unique<unprobed>(std::move(socket))};
  const admission all;
  const auto serve = [&]() -> task<failure> {
    const auto made =
        co_await as_result(detail::shake_hands_as_server(rt.resources(), {}, peer_link, all));
    co_await bootstrap::refuse(peer_link.refusal_channel(), made.failure());
    co_return made.failure();
  };
  const auto connect = [&]() -> task<> {
    connection made = co_await rt.connect(unique_fd{fds[0]});
    co_await made.close();
  };
  const auto [why, closed] = rt.run(when_all(serve(), as_result(connect())));
  CHECK_THAT(why.to_string(), Catch::Contains("setsockopt"));
}
