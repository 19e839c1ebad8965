#include "connection/cm_acceptor.hpp"

#include "cm/foreign_peer.hpp"
#include "cm_peers.hpp"
#include "support/leaks.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <semaphore>
#include <string>
#include <thread>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;
using cm::test::foreign_peer;
using test::check_that_messages_pass;
using test::cm_runtime;

namespace {

connection_options plain() {
  connection_options options;
  options.plain = true;
  return options;
}

}  // namespace

TEST_CASE("two sides that rdma_cm connects have agents, messages and a polite end",
          "[connection][device][rdma_cm]") {
  cm_runtime r;
  listener acceptor = r.listen();
  CHECK(acceptor.local_endpoint().to_string().starts_with("rdma_cm:"));
  auto both = r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  auto& client = std::get<0>(both);
  auto& server = std::get<1>(both);
  check_that_messages_pass(r.rt, client, server);
  CHECK(client.peer().port() == acceptor.local_endpoint().port);
  loan lent = r.rt.run(server.send_local_mr(server.memory().allocate_zeroed(64)));
  {
    const remote_mr borrowed = r.rt.run(client.receive_remote_mr());
    CHECK(borrowed.size_bytes() == 64);
  }
  const auto close_when_told = [&]() -> task<> {
    static_cast<void>(co_await as_result(server.next_message()));
    co_await server.close();
  };
  r.rt.run(when_all(client.close(), close_when_told()));
  CHECK(server.was_closed_by_peer());
}

TEST_CASE("rdma_cm tells at once of a peer that is dropped", "[connection][device][rdma_cm]") {
  cm_runtime r;
  connection_options options;
  options.heartbeat.enabled = false;
  options.insecure = true;
  listener acceptor = r.listen(options);
  auto [client, server] =
      r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint(), options), acceptor.accept()));
  client = {};
  const auto ended = r.rt.run(as_result(server.next_message()));
  REQUIRE(ended.has_failure());
  CHECK(ended.failure().code == make_error_code(errc::disconnected));
  CHECK_FALSE(server.was_closed_by_peer());
}

TEST_CASE("the end of one connection by rdma_cm loses no message of another",
          "[connection][device][rdma_cm]") {
  constexpr unsigned messages = 100;  // More than one poll takes.
  cm_runtime r;
  listener acceptor = r.listen();
  std::binary_semaphore may_send{0};
  std::binary_semaphore all_sent{0};
  std::binary_semaphore may_end{0};
  std::thread peer{[&, at = acceptor.local_endpoint()] {
    connection_options options;
    options.close_timeout = 50ms;  // The server is busy, and does not answer.
    runtime rt{test::on_test_device()};
    connection ends = rt.run(rt.connect(at, options));
    connection sends = rt.run(rt.connect(at));
    local_mr memory = rt.memory().allocate_zeroed(8);
    const auto send_all = [&]() -> task<> {
      for (unsigned n = 0; n < messages; ++n) co_await sends.send(memory.slice(0, 8));
    };
    may_send.acquire();
    rt.run(ends.close());
    rt.run(send_all());
    all_sent.release();
    may_end.acquire();
  }};
  connection ended = r.rt.run(acceptor.accept());
  connection server = r.rt.run(acceptor.accept());
  local_mr memory = r.rt.memory().allocate_zeroed(8 * messages);
  for (unsigned n = 0; n < messages; ++n) server.post_recv(memory.slice(8 * n, 8));
  may_send.release();
  all_sent.acquire();
  const auto receive_all = [&]() -> task<unsigned> {
    unsigned taken = 0;
    while (taken < messages) {
      const message m = co_await server.next_message();
      taken += m.size_bytes == 8 ? 1 : 0;
    }
    co_return taken;
  };
  CHECK(r.rt.run(with_timeout(receive_all(), 60s)) == messages);
  may_end.release();
  peer.join();
}

TEST_CASE("a key authenticates the sides over rdma_cm", "[connection][device][rdma_cm]") {
  cm_runtime r;
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  const credentials other = credentials::psk({"db-1", std::vector(32, std::byte{8})});
  connection_options options;
  options.credentials = &key;
  listener acceptor = r.listen(options);
  {
    auto [client, server] =
        r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint(), options), acceptor.accept()));
    CHECK(server.peer_identity().name == "db-1");
    check_that_messages_pass(r.rt, client, server);
  }
  const failure wrong =
      r.failure_of(r.rt.connect(acceptor.local_endpoint(), {.credentials = &other}));
  CHECK(wrong.code == make_error_code(errc::not_authenticated));
  const failure none = r.failure_of(r.rt.connect(acceptor.local_endpoint()));
  CHECK(none.code == make_error_code(errc::incompatible_peer));
  CHECK_THAT(none.to_string(), Catch::Contains("a pre-shared key here, no authentication there"));
}

TEST_CASE("a program refuses a client of rdma_cm with its reason, and serves the next",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  const auto admit = [](connection_request& request) {
    if (request.private_data[0] == std::byte{1}) request.refuse("no such shard");
    request.reply[0] = std::byte{42};
  };
  listener acceptor = r.listen({}, {.admit = admit});
  std::array<std::byte, 64> data{std::byte{1}};
  const failure told =
      r.failure_of(r.rt.connect(acceptor.local_endpoint(), {.private_data = data}));
  CHECK(told.code == make_error_code(errc::refused));
  CHECK_THAT(told.to_string(), Catch::Contains("no such shard"));
  auto [client, server] =
      r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  CHECK(client.peer_private_data()[0] == std::byte{42});
  check_that_messages_pass(r.rt, server, client);
}

TEST_CASE("another program's client and a plain listener talk", "[connection][device][rdma_cm]") {
  cm_runtime r;
  listener acceptor = r.listen(plain());
  const socket_address to = r.address_of(acceptor);
  std::byte heard{};
  std::thread foreign{[&] {
    foreign_peer client;
    client.connect(to, cm::test::bytes_of("hello"));
    client.expect(RDMA_CM_EVENT_ESTABLISHED);
    client.send(std::byte{0xf0});
    heard = client.receive();
    client.expect(RDMA_CM_EVENT_DISCONNECTED);
  }};
  connection server = r.rt.run(acceptor.accept());
  CHECK(server.peer_private_data()[0] == std::byte{'h'});
  local_mr memory = r.rt.memory().allocate_zeroed(128);
  const message m = r.rt.run(server.recv(memory.slice(0, 64)));
  CHECK(m.size_bytes == 64);
  CHECK(memory.bytes()[0] == std::byte{0xf0});
  memory.bytes()[64] = std::byte{0xc0};
  r.rt.run(server.send(memory.slice(64, 64)));
  CHECK_FALSE(server.has_agent());
  r.rt.run(server.close());
  foreign.join();
  CHECK(heard == std::byte{0xc0});
}

TEST_CASE("a plain client and another program's server talk", "[connection][device][rdma_cm]") {
  cm_runtime r;
  foreign_peer server;
  const socket_address at = server.listen(r.address);
  std::byte heard{};
  std::thread foreign{[&] {
    server.accept(cm::test::bytes_of("welcome"));
    server.expect(RDMA_CM_EVENT_ESTABLISHED);
    heard = server.receive();
    server.send(std::byte{0xf0});
    server.disconnect();
  }};
  const endpoint where = cm_runtime::by_cm(at);
  connection client = r.rt.run(r.rt.connect(where, plain()));
  CHECK(client.peer_private_data()[0] == std::byte{'w'});
  local_mr memory = r.rt.memory().allocate_zeroed(128);
  client.post_recv(memory.slice(0, 64));
  memory.bytes()[64] = std::byte{0xc0};
  r.rt.run(client.send(memory.slice(64, 64)));
  const message m = r.rt.run(client.next_message());
  CHECK(m.size_bytes == 64);
  const auto ended = r.rt.run(as_result(client.next_message()));
  CHECK(ended.failure().code == make_error_code(errc::disconnected));
  foreign.join();
  CHECK(heard == std::byte{0xc0});
}

TEST_CASE("a client of rdma_cm that never gets ready is refused at the deadline",
          "[connection][device][rdma_cm][N4]") {
  manual_clock clock;
  runtime_options options;
  options.executor.clock = &clock;
  cm_runtime r{std::move(options)};
  listener acceptor = r.listen(plain(), {.handshake_timeout = 50ms});
  socket_address to = r.address;
  to.set_port(acceptor.local_endpoint().port);
  foreign_peer client;
  std::thread foreign{[&] { client.connect(to, cm::test::bytes_of("hello")); }};
  r.rt.run(test::until(r.rt.executor(), [&] {
    clock.advance(1ms);
    return acceptor.counters().rejected == 1;
  }));
  foreign.join();
  CHECK(acceptor.last_rejection()->code == make_error_code(errc::timed_out));
  auto [next, server] =
      r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint(), plain()), acceptor.accept()));
  check_that_messages_pass(r.rt, server, next);
}

TEST_CASE("a client of rdma_cm beyond the backlog is told so", "[connection][device][rdma_cm]") {
  cm_runtime r;
  listener acceptor = r.listen({}, {.handshakes_max = 1, .ready_max = 1, .tcp_backlog = 1});
  // No client is accepted: one is ready, one keeps its permit, one waits in the backlog.
  constexpr int clients_max = 8;
  std::string told;
  const auto knock = [&](scope& clients) -> task<> {
    for (;;) {
      const auto outcome =
          co_await as_result(r.rt.connect(acceptor.local_endpoint(), {.connect_timeout = 60s}));
      if (!outcome.has_failure()) co_return;
      const std::string why = outcome.failure().to_string();
      // Requests that come together meet rdma_cm's own backlog before they come to the listener's.
      if (why.find("no room for the connection now") != why.npos) continue;
      told = why;
      co_return clients.request_stop();
    }
  };
  r.rt.run(with_scope([&](scope& clients) -> task<> {
    for (int n = 0; n < clients_max; ++n) clients.spawn(knock(clients));
    co_return;
  }));
  CHECK_THAT(told, Catch::Contains("tcp_backlog is 1: try again"));
}

TEST_CASE("a peer of rdma_cm that is no cordma is named, with the way out",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  {
    foreign_peer server;
    const endpoint where = cm_runtime::by_cm(server.listen(r.address));
    std::thread foreign{[&] { server.accept(cm::test::bytes_of("welcome")); }};
    const failure why = r.failure_of(r.rt.connect(where));
    foreign.join();
    CHECK(why.code == make_error_code(errc::bad_handshake));
    CHECK_THAT(why.to_string(), Catch::Contains("set connection_options::plain"));
  }
  listener acceptor = r.listen();
  const socket_address to = r.address_of(acceptor);
  std::thread foreign{[&] {
    foreign_peer client;
    client.connect(to, cm::test::bytes_of("hello"));
    client.expect(RDMA_CM_EVENT_REJECTED);
  }};
  r.rt.run(test::until(r.rt.executor(), [&] { return acceptor.counters().rejected == 1; }));
  foreign.join();
  CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains("not a cordma's"));
  auto [client, server] =
      r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  check_that_messages_pass(r.rt, client, server);
}

TEST_CASE("where nobody listens by rdma_cm, connect says so", "[connection][device][rdma_cm]") {
  cm_runtime r;
  endpoint gone;
  {
    const listener acceptor = r.listen();
    gone = acceptor.local_endpoint();
  }
  const failure why = r.failure_of(r.rt.connect(gone));
  CHECK(why.code == std::errc::connection_refused);
  CHECK_THAT(why.to_string(), Catch::Contains("to " + gone.to_string() + ": nobody listens"));
}

TEST_CASE("connections by rdma_cm leave nothing behind", "[connection][device][rdma_cm][C5]") {
  cm_runtime r;
  listener acceptor = r.listen();
  const auto come_and_go = [&] {
    auto [client, server] =
        r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint()), acceptor.accept()));
    r.rt.run(when_all(client.close(), server.close()));
  };
  come_and_go();  // Makes what is made once.
  r.rt.run(current_environment());
  const std::string before = test::holdings();
  come_and_go();
  CHECK(test::settled_holdings(r.rt.executor(), before) == before);
}

TEST_CASE("what rdma_cm cannot carry is refused when it is asked for",
          "[connection][device][rdma_cm]") {
  cm_runtime r;
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  connection_options both = plain();
  both.credentials = &key;
  CHECK_THROWS_WITH(r.listen(both), Catch::Contains("credentials and plain"));
  connection_options no_agent;
  no_agent.agent.enabled = false;
  no_agent.insecure = true;
  listener acceptor = r.listen();
  CHECK_THAT(r.failure_of(r.rt.connect(acceptor.local_endpoint(), no_agent)).to_string(),
             Catch::Contains("rdma_cm connects the agents' queue pairs"));
}
