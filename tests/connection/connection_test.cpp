#include <cordma/connection/connection.hpp>

#include "connection/bootstrap.hpp"
#include "request/queue_pair.hpp"
#include "support/connected_pair.hpp"
#include "support/counted_bytes.hpp"
#include "support/foreign_task.hpp"
#include "support/leaks.hpp"
#include "support/memory_host.hpp"
#include "support/peer_process.hpp"
#include "support/some_hello.hpp"
#include "support/until.hpp"
#include "support/verbs_faults.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <cstring>
#include <tuple>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;
using test::deaf;

namespace {

task<> exchange(connected_pair& p) {
  local_mr out = p.rt.memory().allocate_zeroed(64);
  local_mr in = p.rt.memory(test::all_access).allocate_zeroed(64);
  std::memcpy(out.bytes().data(), "from client", 11);
  p.server.post_recv(in.slice(0, 32));
  const std::size_t sent = co_await p.client.send(out.slice(0, 11));
  CHECK(sent == 11);
  const message m = co_await p.server.next_message();
  CHECK(m.size_bytes == 11);
  CHECK(std::memcmp(in.bytes().data(), "from client", 11) == 0);

  const remote_mr_slice remote = in.remote_slice();
  const std::size_t written = co_await p.client.write(out.slice(5, 6), remote.slice(32, 6));
  CHECK(written == 6);
  CHECK(std::memcmp(in.bytes().data() + 32, "client", 6) == 0);
  const std::size_t fetched = co_await p.client.read(out.slice(16, 4), remote.slice(0, 4));
  CHECK(fetched == 4);
  CHECK(std::memcmp(out.bytes().data() + 16, "from", 4) == 0);
  const std::uint64_t before_swap = co_await p.client.compare_swap(remote.slice(48, 8), 0, 42);
  CHECK(before_swap == 0);
  const std::uint64_t before_add = co_await p.client.fetch_add(remote.slice(48, 8), 1);
  CHECK(before_add == 42);
}

}  // namespace

TEST_CASE("two ends connect over sockets that are not the kernel's", "[connection][device]") {
  test::memory_host host;
  test::memory_network& network = host.network;
  network.piece_max = 5;
  runtime_options options;
  options.executor = test::on_memory(host);
  {
    connected_pair p{std::move(options)};
    CHECK(network.open_sockets() == 3);
    CHECK(p.client.peer() == p.server.local());
    p.rt.run(exchange(p));
    p.rt.run(when_all(p.client.close(), p.server.ended()));
    CHECK(p.server.was_closed_by_peer());
  }
  CHECK(network.open_sockets() == 0);
}

TEST_CASE("a server's name is the address that the runtime's own host knows",
          "[connection][device]") {
  test::memory_host host;
  host.names = {{"server", socket_address::loopback(0)}};
  runtime_options options;
  options.executor = test::on_memory(host);
  runtime rt{test::on_test_device(std::move(options))};
  listener acceptor = rt.listen(endpoint{"server", 0});
  const std::uint16_t port = acceptor.local_endpoint().port;
  const auto ends = rt.run(when_all(rt.connect("server", port), acceptor.accept()));
  CHECK(std::get<0>(ends).peer() == socket_address::loopback(port));
  host.names.clear();
  CHECK_THROWS_AS(rt.run(rt.connect("server", port)), error);
}

TEST_CASE("with the same random bytes two connects give the same numbers", "[connection][device]") {
  const auto numbers = [] {
    test::counted_bytes bytes;
    const detail::random_scope replaced{bytes};
    connection_options with_agent;
    with_agent.agent.enabled = true;
    const connected_pair p{{}, with_agent, with_agent};
    const handshake::hello& client = p.client.local_hello();
    const handshake::hello& server = p.server.local_hello();
    CHECK(client.nonce != server.nonce);
    CHECK(client.agent.psn != 0);
    return std::array{std::tuple{client.psn, client.agent.psn, client.nonce},
                      std::tuple{server.psn, server.agent.psn, server.nonce}};
  };
  CHECK(numbers() == numbers());
}

TEST_CASE("two ends connect by TCP, and move data both ways", "[connection][device][N1]") {
  connected_pair p;
  CHECK(p.client.is_open());
  CHECK(p.client.peer() == p.server.local());
  CHECK(p.client.local() == p.server.peer());
  CHECK(p.client.verbs().query_state() == verbs::queue_pair_state::rts);
  p.rt.run(exchange(p));
  std::swap(p.client, p.server);
  p.rt.run(exchange(p));
}

TEST_CASE("ends of one InfiniBand subnet reach each other by LID, ends on Ethernet by GID",
          "[connection][device][N1]") {
  connected_pair p;
  ibv_qp* const qp = p.client.verbs().native_handle();
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  REQUIRE(ibv_query_qp(qp, &attributes, IBV_QP_AV, &initial) == 0);
  ibv_port_attr port{};
  REQUIRE(ibv_query_port(qp->context, attributes.ah_attr.port_num, &port) == 0);
  const bool by_lid = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
  CHECK(attributes.ah_attr.is_global == (by_lid ? 0 : 1));
  if (by_lid) CHECK(attributes.ah_attr.dlid == port.lid);
}

namespace {

/// How an operation ended: its error, or `operation_canceled` for a stop, or none.
template <class Op>
task<std::error_code> end_of(Op op) {
  const auto outcome = co_await as_result(op);
  if (outcome.is_cancelled()) co_return std::make_error_code(std::errc::operation_canceled);
  co_return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

task<> set_free(connection& c) {
  c = {};
  co_return;
}

using ends = std::array<std::error_code, 10>;

/// Every kind of wait there is on the client's side, and the one that ends them.
ends ends_of_all(connected_pair& p, task<> trigger, local_mr& memory) {
  const remote_mr_slice remote = memory.remote_slice();
  // The peer posted no receive: the first send is being retried, the others are behind it.
  auto handle = p.client.post(send(memory.slice(0, 8)));
  auto batch =
      p.client.post_all(write(memory.slice(0, 8), remote.slice(16, 8)), send(memory.slice(0, 8)));
  auto write_handle = p.client.post(write(memory.slice(0, 8), remote.slice(16, 8)));
  auto [a, b, c, d, e, f, g, h, i, j, triggered] = p.rt.run(when_all(
      end_of(p.client.next_message()), end_of(p.client.recv(memory.slice(8, 8))),
      end_of(p.client.send(memory.slice(0, 8))), end_of(std::move(handle)),
      end_of(std::move(batch)), end_of(p.client.write(memory.slice(0, 8), remote.slice(16, 8))),
      end_of(p.client.read(memory.slice(24, 8), remote.slice(16, 8))),
      end_of(p.client.compare_swap(remote.slice(32, 8), 0, 1)),
      end_of(p.client.fetch_add(remote.slice(40, 8), 1)), end_of(std::move(write_handle)),
      std::move(trigger)));
  static_cast<void>(triggered);
  return {a, b, c, d, e, f, g, h, i, j};
}

connection_options patient() {
  connection_options o;
  o.close_timeout = 300ms;
  return o;
}

void check_hung_up(const connected_pair& p, const ends& codes) {
  for (const std::error_code& code : codes) CHECK(code == make_error_code(errc::disconnected));
  CHECK_FALSE(p.client.is_open());
  const std::optional<failure> why = p.client.why_lost();
  REQUIRE(why);
  CHECK(why->code == make_error_code(errc::disconnected));
  CHECK(why->call == std::string{"hang_up"});
  CHECK(why->to_string().find("peer 127.0.0.1:") != std::string::npos);
}

}  // namespace

TEST_CASE("when the peer drops the connection, everything in flight ends",
          "[connection][device][C2]") {
  connected_pair p{{}, deaf(), deaf()};
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  SECTION("its device answers") {}
  SECTION("its device is silent") { p.server.qp().verbs().to_reset(); }
  check_hung_up(p, ends_of_all(p, set_free(p.server), memory));
}

TEST_CASE("when the peer closes in order, everything in flight ends", "[connection][device][C2]") {
  connected_pair p{{}, deaf(), deaf()};
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  SECTION("its device answers") {}
  SECTION("its device is silent") { p.server.qp().verbs().to_reset(); }
  check_hung_up(p, ends_of_all(p, p.server.close(), memory));
}

TEST_CASE("when the connection is dropped, everything in flight ends as closed",
          "[connection][device][C2][C3]") {
  connected_pair p{{}, patient(), patient()};
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  const auto codes = ends_of_all(p, set_free(p.client), memory);
  for (const std::error_code& code : codes) CHECK(code == make_error_code(errc::closed));
  CHECK(p.rt.executor().closer().running() == 0);
  p.rt.run(with_timeout(p.server.qp().failed_event().wait(), 10s));
  CHECK_FALSE(p.server.is_open());
}

TEST_CASE("when the queue pair breaks, everything in flight ends, on both sides",
          "[connection][device][C2][R4]") {
  connected_pair p{{}, patient(), patient()};
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  auto break_it = [&]() -> task<> {
    const remote_mr_slice nobodys{0x1000, 8, 0xdead00};
    const std::error_code code = co_await end_of(p.server.write(memory.slice(0, 8), nobodys));
    CHECK(code == make_error_code(wc_errc::remote_access));
  };
  auto other_side = [&]() -> task<> {
    const std::error_code code = co_await end_of(p.server.next_message());
    CHECK(code == make_error_code(wc_errc::remote_access));
  };
  auto both = [&]() -> task<> { co_await when_all(break_it(), other_side()); };
  const auto codes = ends_of_all(p, both(), memory);
  for (const std::error_code& code : codes) CHECK(code);
  CHECK_FALSE(p.client.is_open());
  CHECK_FALSE(p.server.is_open());
}

TEST_CASE("a close lets what was posted finish, and loses no message", "[connection][device][C2]") {
  connected_pair p;
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(4096);
  for (int i = 0; i < 50; ++i) p.server.post_recv(memory.slice(0, 8));
  auto send_and_close = [&]() -> task<> {
    for (int i = 0; i < 49; ++i) {
      static_cast<void>(p.client.post(send(memory.slice(8, 8), {.signaled = false})));
    }
    auto last = p.client.post(send(memory.slice(8, 8)));
    co_await p.client.close();
    CHECK(last.has_ended());
    CHECK_FALSE(last.failed());
  };
  int received = 0;
  auto receive_all = [&]() -> task<> {
    for (;;) {
      const auto m = co_await as_result(p.server.next_message());
      if (!m.has_value()) {
        CHECK(m.failure().code == make_error_code(errc::disconnected));
        co_return;
      }
      ++received;
    }
  };
  p.rt.run(when_all(send_and_close(), receive_all()));
  CHECK(received == 50);
  CHECK_FALSE(p.client.is_open());
  // Idempotent, on both sides.
  p.rt.run(p.client.close());
  p.rt.run(p.server.close());
  CHECK(p.rt.run(end_of(p.client.send(memory.slice(0, 8)))) == make_error_code(errc::disconnected));
}

TEST_CASE("both sides may close at once", "[connection][device][C2]") {
  connected_pair p;
  const time_point start = p.rt.executor().now();
  p.rt.run(when_all(p.client.close(), p.server.close()));
  CHECK(p.rt.executor().now() - start < 1s);
}

TEST_CASE("a connection may be moved while its operations wait", "[connection][device]") {
  connected_pair p;
  local_mr memory = p.rt.memory(test::all_access).allocate_zeroed(64);
  auto move_then_send = [&]() -> task<> {
    connection elsewhere = std::move(p.server);
    p.server = std::move(elsewhere);
    co_await p.client.send(memory.slice(0, 4));
  };
  p.server.post_recv(memory.slice(8, 8));
  auto [m, sent] = p.rt.run(when_all(p.server.next_message(), move_then_send()));
  CHECK(m.size_bytes == 4);
  CHECK_FALSE(connection{});
}

TEST_CASE("each side gets the smaller MTU and rd_atomic of both", "[connection][device][N3]") {
  connection_options few;
  few.rd_atomic_max = 1;
  connected_pair p{{}, {}, few};
  CHECK(p.client.agreement().rts.rd_atomic_max == 1);
  CHECK(p.client.agreement().rtr.dest_rd_atomic_max == 1);
  CHECK(p.server.agreement().rts.rd_atomic_max == 1);
  CHECK(p.client.agreement().rtr.path_mtu == p.client.local_hello().mtu);
  CHECK(p.client.peer_hello().qpn == p.server.local_hello().qpn);
  CHECK(p.server.peer_hello().psn == p.client.local_hello().psn);
}

TEST_CASE("capabilities above the device's are refused before anything is made, naming both",
          "[connection][device][N9]") {
  runtime rt{test::on_test_device()};
  connection_options o;
  o.capabilities.send_wr_max = rt.context().limits().qp_wr_max + 1;
  const std::string both[] = {std::to_string(o.capabilities.send_wr_max),
                              std::to_string(rt.context().limits().qp_wr_max)};
  for (const std::string& number : both) {
    CHECK_THROWS_WITH(rt.listen({}, {}, o), Catch::Contains(number));
    CHECK_THROWS_WITH(rt.run(rt.connect({"127.0.0.1", 1}, o)), Catch::Contains(number));
  }
}

TEST_CASE("a setup that fails at any verbs call is unwound, and the next one works",
          "[connection][device][C5]") {
  connected_pair p;
  p.rt.run(when_all(p.client.close(), p.server.close()));
  p.client = {};
  p.server = {};
  p.rt.run(current_environment());  // Dropped connections go now.
  const std::string before = test::holdings();

  verbs_faults::fail_call(0, 0);
  p.rt.run(p.open({}));
  const unsigned steps = verbs_faults::calls_made();
  p.client = {};
  p.server = {};
  p.rt.run(current_environment());
  REQUIRE(test::settled_holdings(p.rt.executor(), before) == before);
  REQUIRE(steps >= 8);  // Two queue pairs, through three states each.

  for (unsigned k = 1; k <= steps; ++k) {
    verbs_faults::fail_call(k, ENOMEM);
    const auto outcome = p.rt.run(as_result(p.rt.connect(p.acceptor.local_endpoint())));
    INFO("call " << k << ": " << verbs_faults::failed_call());
    REQUIRE(outcome.has_failure());
    p.rt.run(current_environment());
    CHECK(test::settled_holdings(p.rt.executor(), before) == before);
  }
  verbs_faults::fail_call(0, 0);
  p.rt.run(p.open({}));
  p.rt.run(exchange(p));
}

TEST_CASE("a listener's half of a setup that fails at any verbs call is unwound",
          "[connection][device][C5]") {
  connected_pair p;
  const handshake::hello hello = p.client.local_hello();
  const socket_address where = socket_address::loopback(p.acceptor.local_endpoint().port);
  const std::string before = test::holdings();
  auto say_hello = [&]() -> task<failure> {
    stream_channel stream{co_await stream_socket::connect(p.rt.executor(), where)};
    co_await test::greet(stream, hello);
    const auto answer = co_await as_result(bootstrap::read_hello(stream));
    co_return answer.has_failure() ? answer.failure() : failure{};
  };
  constexpr unsigned steps = 4;  // A queue pair, to INIT, to RTR, to RTS.
  for (unsigned k = 1; k <= steps; ++k) {
    verbs_faults::fail_call(k, ENOMEM);
    const failure refusal = p.rt.run(say_hello());
    INFO("call " << k << ": " << verbs_faults::failed_call());
    CHECK(refusal.code == make_error_code(errc::refused));
    CHECK(p.acceptor.counters().rejected == k);
    CHECK(test::settled_holdings(p.rt.executor(), before) == before);
  }
  verbs_faults::fail_call(0, 0);
  p.client = {};
  p.server = {};
  p.rt.run(p.open({}));
  p.rt.run(exchange(p));
}

TEST_CASE("a connect that is stopped or times out at any moment is unwound",
          "[connection][device][C5][N4]") {
  connected_pair p;
  for (int us = 0; us < 20'000; us += 500) {
    const auto outcome = p.rt.run(as_result(
        with_timeout(p.rt.connect(p.acceptor.local_endpoint()), std::chrono::microseconds{us})));
    if (outcome.has_failure()) CHECK(outcome.failure().code == make_error_code(errc::timed_out));
  }
  while (p.rt.run(as_result(with_timeout(p.acceptor.accept(), 50ms))).has_value()) continue;
  p.rt.run(p.open({}));
  p.rt.run(exchange(p));
}

TEST_CASE("a time-out that no clock can count is for ever", "[connection][device]") {
  constexpr auto for_ever = std::chrono::milliseconds::max();
  connected_pair p;
  auto [local, remote, closed] = p.rt.run(
      when_all(as_result(with_timeout(p.client.receive_local_mr(), for_ever)),
               as_result(with_timeout(p.client.receive_remote_mr(), for_ever)), p.server.close()));
  REQUIRE(local.has_failure());
  CHECK(local.failure().code == make_error_code(errc::disconnected));
  REQUIRE(remote.has_failure());
  CHECK(remote.failure().code == make_error_code(errc::disconnected));
}

TEST_CASE("a coroutine that names no scheduler connects, waits with time-outs, and closes",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen();
  const auto foreign = [](runtime& at, listener& from) -> support::foreign_task {
    connection conn = co_await at.connect(from.local_endpoint());
    const auto late = [](const auto& outcome) {
      return outcome.has_failure() && outcome.failure().code == make_error_code(errc::timed_out);
    };
    const auto message = co_await as_result(with_timeout(conn.next_message(), 1ms));
    CHECK(late(message));
    const auto lent =
        co_await as_result(with_timeout(conn.receive_local_mr(), 1ms, &at.executor()));
    CHECK(late(lent));
    const auto first = co_await when_any(conn.next_message(), sleep_for(1ms));
    CHECK(first.index() == 1);
    local_mr memory = at.memory().allocate_zeroed(8);
    const auto unheard = co_await as_result(with_timeout(conn.send(memory.slice()), 1ms));
    CHECK(late(unheard));
    std::array<std::byte, 1> bytes;
    stream_channel tcp{co_await stream_socket::connect(
        at.executor(), socket_address::loopback(from.local_endpoint().port))};
    const auto read = co_await as_result(with_timeout(read_some(tcp, bytes), 1ms, &at.executor()));
    CHECK(late(read));
    co_await from.close();
    co_await conn.close();
  };
  const support::foreign_task f = foreign(rt, acceptor);
  rt.run(test::until(rt.executor(), [&] { return f.done(); }));
  f.rethrow();
}
