#include <cordma/connection/listener.hpp>

#include "base/failures.hpp"
#include "connection/bootstrap.hpp"
#include "connection/connect.hpp"
#include "request/queue_pair.hpp"
#include "support/connected_pair.hpp"
#include "support/leaks.hpp"
#include "support/silent_client.hpp"
#include "support/some_hello.hpp"
#include "support/temporary_folder.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <optional>
#include <stdexcept>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;
using test::connected_pair;

namespace {

std::error_code code_of_connect(runtime& rt, const endpoint& where, connection_options o = {}) {
  const auto outcome = rt.run(as_result(rt.connect(where, o)));
  return outcome.has_failure() ? outcome.failure().code : std::error_code{};
}

/// A TCP server that speaks, or does not, and never shakes hands.
task<> answer(stream_listener& acceptor, std::string_view words) {
  stream_channel s{co_await acceptor.accept()};
  co_await write_all(s, std::as_bytes(std::span{words}));
  co_await s.socket().hang_up();
}

}  // namespace

TEST_CASE("a listener is at loopback, on a port of its own, unless told otherwise",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  const listener a = rt.listen();
  const listener b = rt.listen({"127.0.0.1", 0});
  CHECK(a.local_endpoint().host == "127.0.0.1");
  CHECK(a.local_endpoint().port != 0);
  CHECK(a.local_endpoint().port != b.local_endpoint().port);
}

TEST_CASE("a port in use is an error that names it", "[connection][device]") {
  runtime rt{test::on_test_device()};
  const listener first = rt.listen();
  CHECK_THROWS_WITH(rt.listen(first.local_endpoint()),
                    Catch::Contains(first.local_endpoint().to_string()));
}

TEST_CASE("where nobody listens, connect says so at once", "[connection][device]") {
  runtime rt{test::on_test_device()};
  endpoint gone;
  {
    const listener l = rt.listen();
    gone = l.local_endpoint();
  }
  rt.run(current_environment());
  CHECK_THROWS_WITH(rt.run(rt.connect(gone)),
                    Catch::Contains(gone.to_string()) && Catch::Contains("nobody listens"));
}

TEST_CASE("a server that is silent or speaks otherwise is an error in time",
          "[connection][device][N2][N4]") {
  runtime rt{test::on_test_device()};
  stream_listener acceptor{rt.executor(), socket_address::loopback(0)};
  const endpoint where{"127.0.0.1", acceptor.local_address().port()};
  connection_options o;
  const auto run = [&](std::string_view words) {
    auto connect = [&]() -> task<std::error_code> {
      const auto outcome = co_await as_result(rt.connect(where, o));
      co_return outcome.failure().code;
    };
    auto [code, answered] = rt.run(when_all(connect(), answer(acceptor, words)));
    return code;
  };
  CHECK(run("220 smtp.example ESMTP\r\n") == make_error_code(errc::bad_handshake));
  // Version 1.1, whose numbers were big-endian.
  CHECK(run(std::string_view{"CRMA\1\1\0\200", 8}) == make_error_code(errc::incompatible_peer));
  o.connect_timeout = 100ms;
  CHECK(run("") == make_error_code(errc::timed_out));
}

TEST_CASE("a garbage client does not keep the next from being served", "[connection][device][N2]") {
  connected_pair p;
  const std::string before = test::holdings();
  const socket_address where = socket_address::loopback(p.acceptor.local_endpoint().port);
  for (const std::string_view words : {"GET / HTTP/1.1\r\n\r\n", "CRMA", ""}) {
    stream_channel s{p.rt.run(stream_socket::connect(p.rt.executor(), where))};
    p.rt.run(write_all(s, std::as_bytes(std::span{words})));
  }
  CHECK(test::settled_holdings(p.rt.executor(), before) == before);
  p.rt.run(p.open({}));
  CHECK(p.client.is_open());
  CHECK(p.acceptor.counters().completed == 2);
}

TEST_CASE("a flood of silent clients keeps no real client out", "[connection][device][floods]") {
  const char* const flooder = GENERATE("127.0.0.1", "127.0.0.2");
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen({}, {.handshakes_max = 64});
  const endpoint where = acceptor.local_endpoint();
  const auto silent = test::silent_clients(rt.executor(), flooder, where.port, 64);
  auto [client, server] = rt.run(when_all(rt.connect(where), acceptor.accept()));
  CHECK(client.is_open());
  CHECK(server.is_open());
  CHECK(acceptor.counters().dropped == 1);
  CHECK(acceptor.counters().rejected == 0);
}

namespace {

struct told {
  failure refusal{};
  handshake::hello answer{};
};

/// A client made by hand, which says `hello` and accepts whatever comes.
task<told> shake_by_hand(runtime& rt, socket_address where, handshake::hello hello) {
  stream_channel stream{co_await stream_socket::connect(rt.executor(), where)};
  co_await test::greet(stream, hello);
  const auto answer = co_await as_result(bootstrap::read_hello(stream));
  if (answer.has_failure()) co_return told{.refusal = answer.failure()};
  co_await test::say_accepted(stream, (*answer).nonce);
  co_await bootstrap::read_acceptance(stream, hello.nonce);
  co_return told{.answer = *answer};
}

}  // namespace

TEST_CASE("a client of another network is refused, both values named, and leaves nothing",
          "[connection][device][N3][C5]") {
  connected_pair p;
  handshake::hello hello = p.client.local_hello();
  const auto mine = p.server.local_hello();
  std::string here;
  std::string there;
  SECTION("link layer") {
    const bool is_ethernet = mine.layer == handshake::link_layer::ethernet;
    hello.layer = is_ethernet ? handshake::link_layer::infiniband : handshake::link_layer::ethernet;
    here = handshake::to_string(mine.layer);
    there = handshake::to_string(hello.layer);
  }
  SECTION("GID type") {
    if (mine.layer != handshake::link_layer::ethernet) return;
    const bool is_v2 = mine.gid_kind == verbs::gid_type::roce_v2;
    hello.gid_kind = is_v2 ? verbs::gid_type::roce_v1 : verbs::gid_type::roce_v2;
    here = verbs::to_string(mine.gid_kind);
    there = verbs::to_string(hello.gid_kind);
  }
  SECTION("partition") {
    hello.pkey = 0x8001;
    here = detail::detail_text("P_Key 0x%04x", unsigned{mine.pkey}).view();
    there = "0x8001";
  }
  const std::string before = test::holdings();
  const socket_address where = socket_address::loopback(p.acceptor.local_endpoint().port);
  const told heard = p.rt.run(shake_by_hand(p.rt, where, hello));
  CHECK(heard.refusal.code == make_error_code(errc::incompatible_peer));
  CHECK_THAT(heard.refusal.to_string(),
             Catch::Contains(here + " here, ") && Catch::Contains(there + " there"));
  CHECK(test::settled_holdings(p.rt.executor(), before) == before);
}

TEST_CASE("a client whose MTU is smaller gets it", "[connection][device][N3]") {
  connected_pair p;
  REQUIRE(p.server.local_hello().mtu > IBV_MTU_256);
  handshake::hello hello = p.client.local_hello();
  hello.mtu = IBV_MTU_256;
  const socket_address where = socket_address::loopback(p.acceptor.local_endpoint().port);
  auto [heard, server] = p.rt.run(when_all(shake_by_hand(p.rt, where, hello), p.acceptor.accept()));
  CHECK(heard.answer.mtu == p.server.local_hello().mtu);
  CHECK(server.agreement().rtr.path_mtu == IBV_MTU_256);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr initial{};
  REQUIRE(ibv_query_qp(server.qp().verbs().native_handle(), &attributes, IBV_QP_PATH_MTU,
                       &initial) == 0);
  CHECK(attributes.path_mtu == IBV_MTU_256);
}

TEST_CASE("accept times out and can be asked again", "[connection][device][N4]") {
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen();
  const auto none = rt.run(as_result(with_timeout(acceptor.accept(), 5ms)));
  REQUIRE(none.has_failure());
  CHECK(none.failure().code == make_error_code(errc::timed_out));
  auto [c, s] = rt.run(when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  CHECK(c.is_open());
}

TEST_CASE("closing or dropping a listener ends who accepts, and no connection",
          "[connection][device][N4]") {
  const bool is_dropped = GENERATE(false, true);
  connected_pair p;
  auto close = [&]() -> task<> {
    p.acceptor.close();
    if (is_dropped) const listener gone = std::move(p.acceptor);
    co_return;
  };
  auto accept = [&]() -> task<std::error_code> {
    const auto outcome = co_await as_result(p.acceptor.accept());
    co_return outcome.failure().code;
  };
  auto [code, closed] = p.rt.run(when_all(accept(), close()));
  CHECK(code == make_error_code(errc::closed));
  CHECK(p.client.is_open());
  CHECK(p.server.is_open());
}

TEST_CASE("a listener that is closed refuses the next client, and its port is free at once",
          "[connection][device][N4]") {
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen();
  const endpoint where = acceptor.local_endpoint();
  rt.run(current_environment());  // The listener waits in the kernel.
  acceptor.close();
  CHECK(code_of_connect(rt, where).value() == ECONNREFUSED);
  CHECK(acceptor.local_endpoint().port == where.port);
  listener next = rt.listen(where);
  auto [c, s] = rt.run(when_all(rt.connect(where), next.accept()));
  CHECK(c.is_open());
}

TEST_CASE("awaiting a listener's close waits for the handshakes under way",
          "[connection][device][N4][C5]") {
  const bool is_dropped = GENERATE(false, true);
  connected_pair p;
  std::optional<listener> acceptor{std::move(p.acceptor)};
  const socket_address where = socket_address::loopback(acceptor->local_endpoint().port);
  stream_channel halfway{p.rt.run(stream_socket::connect(p.rt.executor(), where))};
  p.rt.run(test::greet(halfway, p.client.local_hello()));
  static_cast<void>(p.rt.run(bootstrap::read_hello(halfway)));
  std::byte word{};
  auto closed = [&]() -> task<std::size_t> {
    co_await acceptor->close();
    // The stream is at its end now: nothing is left to wait for.
    const ssize_t n = ::recv(halfway.socket().fd(), &word, 1, MSG_DONTWAIT);
    co_return std::size_t(n);
  };
  auto drop = [&]() -> task<> {
    if (is_dropped) acceptor.reset();
    co_return;
  };
  auto [left, dropped] = p.rt.run(when_all(closed(), drop()));
  CHECK(left == 0);
  if (!is_dropped) p.rt.run(acceptor->close());  // A second close has nothing to wait for.
}

TEST_CASE("connections that nobody accepted end with their listener", "[connection][device][C3]") {
  runtime rt{test::on_test_device()};
  std::vector<connection> clients;
  {
    const listener acceptor = rt.listen();
    for (int i = 0; i < 3; ++i) clients.push_back(rt.run(rt.connect(acceptor.local_endpoint())));
  }
  rt.run(current_environment());
  for (connection& c : clients) {
    const auto m = rt.run(as_result(c.next_message()));
    REQUIRE(m.has_failure());
    CHECK(m.failure().code == make_error_code(errc::disconnected));
  }
}

TEST_CASE("connections that are ready wait for whoever accepts, in order",
          "[connection][device][N5]") {
  runtime rt{test::on_test_device()};
  listener acceptor = rt.listen();
  std::vector<connection> clients;
  for (int i = 0; i < 10; ++i) clients.push_back(rt.run(rt.connect(acceptor.local_endpoint())));
  for (const connection& client : clients)
    CHECK(rt.run(acceptor.accept()).peer_hello().qpn == client.local_hello().qpn);
}

TEST_CASE("many connections share one listener and one executor", "[connection][device][N5]") {
  constexpr int count = 100;
  runtime rt{test::on_test_device()};
  // All clients come at once: none must give its place to another one.
  listener acceptor = rt.listen({}, {.handshake_timeout = 1min});
  local_mr memory = rt.memory().allocate_zeroed(8 * count);
  int messages = 0;
  auto serve = [&](connection c, int i) -> task<> {
    const message m = co_await c.recv(memory.slice(std::size_t(i) * 8, 8));
    messages += m.size_bytes == 8 ? 1 : 0;
    co_await c.close();
  };
  auto client = [&]() -> task<> {
    connection c = co_await rt.connect(acceptor.local_endpoint());
    local_mr mine = rt.memory().allocate_zeroed(8);
    co_await c.send(mine.slice());
    static_cast<void>(co_await as_result(c.next_message()));
  };
  auto serve_all = [&](scope& inner) -> task<> {
    for (int i = 0; i < count; ++i) inner.spawn(client());
    for (int i = 0; i < count; ++i) inner.spawn(serve(co_await acceptor.accept(), i));
  };
  rt.run(with_scope(serve_all));
  CHECK(messages == count);
  CHECK(rt.completion_queue_count() > 1);
  CHECK(rt.executor().closer().running() == 0);
}

TEST_CASE("a server that was restarted can be reconnected to", "[connection][device][N6]") {
  connected_pair p;
  const endpoint where = p.acceptor.local_endpoint();
  for (int i = 0; i < 3; ++i) {
    {
      const listener gone = std::move(p.acceptor);
    }
    p.server = {};
    p.rt.run(current_environment());
    const auto lost = p.rt.run(as_result(p.client.next_message()));
    CHECK(lost.failure().code == make_error_code(errc::disconnected));
    CHECK(lost.failure().remedy() == failure::remedy_kind::reconnect);
    CHECK(code_of_connect(p.rt, where) == std::errc::connection_refused);
    p.acceptor = p.rt.listen(where);
    p.rt.run(p.open({}));
    CHECK(p.client.is_open());
  }
}

namespace {

/// Lets `cordma::accept` take the next client of `acceptor`, whose socket another executor had.
task<result<connection>> accept_by_hand(runtime& rt, stream_listener& acceptor,
                                        std::chrono::milliseconds timeout = 10s) {
  stream_socket taken = co_await acceptor.accept();
  stream_socket stream{rt.executor(), std::move(taken).release()};
  const connection_options options;
  co_return co_await as_result(
      detail::accept(rt.resources(), std::move(stream), options, {}, timeout));
}

}  // namespace

TEST_CASE("a socket that was accepted elsewhere becomes a connection", "[connection][device]") {
  runtime rt{test::on_test_device()};
  stream_listener acceptor{rt.executor(), socket_address::loopback(0)};
  const endpoint where{"127.0.0.1", acceptor.local_address().port()};
  auto [client, server] = rt.run(when_all(rt.connect(where), accept_by_hand(rt, acceptor)));
  REQUIRE(server.has_value());
  local_mr memory = rt.memory().allocate_zeroed(16);
  const auto [m, sent] =
      rt.run(when_all(server->recv(memory.slice(0, 8)), client.send(memory.slice(8, 8))));
  CHECK(m.size_bytes == sent);
}

TEST_CASE("a client on such a socket is told why its handshake failed",
          "[connection][device][N2][C5]") {
  runtime rt{test::on_test_device()};
  stream_listener acceptor{rt.executor(), socket_address::loopback(0)};
  const std::string before = test::holdings();
  std::string_view words = "GET / HTTP/1.1\r\n\r\n";
  errc expected = errc::bad_handshake;
  std::chrono::milliseconds timeout = 10s;
  SECTION("garbage") {}
  SECTION("silence") {
    words = "";
    expected = errc::timed_out;
    timeout = 1ms;
  }
  auto speak = [&]() -> task<failure> {
    stream_channel s{co_await stream_socket::connect(rt.executor(), acceptor.local_address())};
    co_await write_all(s, std::as_bytes(std::span{words}));
    const auto heard = co_await as_result(bootstrap::read_hello(s));
    co_return heard.has_failure() ? heard.failure() : failure{};
  };
  auto [heard, made] = rt.run(when_all(speak(), accept_by_hand(rt, acceptor, timeout)));
  REQUIRE(made.has_failure());
  CHECK(made.failure().code == make_error_code(expected));
  CHECK(heard.code == make_error_code(expected));
  CHECK(test::settled_holdings(rt.executor(), before) == before);
}
