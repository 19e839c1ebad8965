#include "security/tls_channel.hpp"

#include "security/certificates.hpp"
#include "security/tls_pair.hpp"
#include "security/values.hpp"
#include "security/wire.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <thread>

using namespace cordma;
using namespace cordma::test;

namespace {

/// Credentials of each kind, so that a test can run with both.
struct both_kinds {
  authority ca;
  credentials key = blue();
  credentials certificate = ca.issue();
  std::array<const credentials*, 2> all{&key, &certificate};
};

}  // namespace

TEST_CASE("two sides with the same key know each other by its id", "[security]") {
  const credentials key = blue();
  tls_pair p{key, key};
  p.connect();
  CHECK(p.client.peer().kind == authentication::psk);
  CHECK(p.client.peer().name == "blue");
  CHECK(p.server.peer().kind == authentication::psk);
  CHECK(p.server.peer().name == "blue");
}

TEST_CASE("two sides with certificates of one authority know each other by name", "[security]") {
  const authority ca;
  const credentials client = ca.issue({.names = "DNS:client.example"});
  const credentials server = ca.issue();
  tls_pair p{client, server};
  p.connect();
  CHECK(p.client.peer().kind == authentication::certificate);
  CHECK(p.client.peer().name == "server.example");
  CHECK(p.server.peer().kind == authentication::certificate);
  CHECK(p.server.peer().name == "client.example");
}

TEST_CASE("bytes of any number go through TLS in both directions at once", "[security]") {
  const credentials key = blue();
  for (const std::size_t size : {0u, 1u, 127u, 16'384u, 16'385u, 1u << 20}) {
    tls_pair p{key, key};
    p.connect();
    const std::vector<std::byte> sent = numbered(size);
    std::vector<std::byte> to_client(size);
    std::vector<std::byte> to_server(size);
    p.executor.run(when_all(write_all(p.client, sent), write_all(p.server, sent),
                            read_exactly(p.client, to_client), read_exactly(p.server, to_server)));
    CHECK(to_client == sent);
    CHECK(to_server == sent);
  }
}

TEST_CASE("handshakes and data go through any room and in pieces of any size", "[security]") {
  executor unused;
  both_kinds kinds;
  const std::vector<std::byte> sent = numbered(40'000);
  for (const credentials* kind : kinds.all) {
    for (const std::size_t piece : {1u, 7u, 1000u}) {
      tls_wire w{unused, *kind, *kind};
      for (wire_end* end : {&w.client, &w.server}) end->read_max = end->room = piece;
      w.shake_hands();
      REQUIRE(w.both_succeeded());
      std::vector<std::byte> to_client(sent.size());
      std::vector<std::byte> to_server(sent.size());
      w.loop.run(when_all(write_all(w.on_client, sent), write_all(w.on_server, sent),
                          read_exactly(w.on_client, to_client),
                          read_exactly(w.on_server, to_server)));
      CHECK(to_client == sent);
      CHECK(to_server == sent);
    }
  }
}

TEST_CASE("what was taken is sent once there is room, and then the end", "[security]") {
  executor unused;
  const credentials key = blue();
  tls_wire w{unused, key, key};
  w.shake_hands();
  REQUIRE(w.both_succeeded());
  w.client.room = 10;
  CHECK(w.on_client.try_write(bytes_of("taken")) == 5);
  CHECK(w.on_client.try_write(bytes_of("not yet")) == 0);
  w.on_client.end_writing();
  CHECK_FALSE(w.server.has_ended);
  std::vector<std::byte> got(5);
  w.loop.run(read_exactly(w.on_server, got));
  CHECK(got == bytes_of("taken"));
  CHECK(w.loop.run(read_some(w.on_server, got)) == 0);
  CHECK(w.server.has_ended);
}

TEST_CASE("nothing that is written can be read on the way", "[security]") {
  executor unused;
  both_kinds kinds;
  for (const credentials* kind : kinds.all) {
    tls_wire w{unused, *kind, *kind};
    w.shake_hands();
    REQUIRE(w.both_succeeded());
    const std::vector<std::byte> secret = numbered(64);
    CHECK(w.on_client.try_write(secret) == secret.size());
    const auto& sent = w.client.sent;
    CHECK(std::search(sent.begin(), sent.end(), secret.begin(), secret.end()) == sent.end());
  }
}

TEST_CASE("both sides export the same secret, another for each label, context and connection",
          "[security]") {
  executor unused;
  both_kinds kinds;
  std::vector<tls_engine::exported> seen;
  for (const credentials* kind : kinds.all) {
    for (int connection = 0; connection < 2; ++connection) {
      tls_wire w{unused, *kind, *kind};
      w.shake_hands();
      REQUIRE(w.both_succeeded());
      for (const char* label : {"EXPORTER-cordma-a", "EXPORTER-cordma-b"}) {
        for (const char* context : {"", "hello", "hellp"}) {
          const auto ours = w.on_client.export_secret(label, bytes_of(context));
          CHECK(ours == w.on_server.export_secret(label, bytes_of(context)));
          seen.push_back(ours);
        }
      }
    }
  }
  std::ranges::sort(seen);
  CHECK(std::ranges::adjacent_find(seen) == seen.end());
  CHECK(seen.size() == 24);
}

TEST_CASE("a side that is stopped, or ends, at any byte of the handshake leaves nothing behind",
          "[security]") {
  executor unused;
  both_kinds kinds;
  for (const credentials* kind : kinds.all) {
    for (const bool is_client : {true, false}) {
      for (std::size_t bytes = 0;; bytes += 97) {
        tls_wire w{unused, *kind, *kind};
        // The other side gets no more than these bytes, so both wait, until one is stopped.
        (is_client ? w.client : w.server).room = bytes;
        (is_client ? w.server : w.client).read_max = 0;
        support::started client{w.loop.scheduler, one_side(w.on_client, tls_role::client,
                                                           "server.example", w.client_side)};
        support::started server{w.loop.scheduler,
                                one_side(w.on_server, tls_role::server, {}, w.server_side)};
        w.loop.settle();
        CHECK_FALSE(w.both_succeeded());
        (is_client ? client : server).request_stop();
        w.loop.settle();
        CHECK((is_client ? client : server).has_ended());
        CHECK_FALSE((is_client ? w.client_side : w.server_side).ended.has_value());
        if (bytes > 400) break;
      }
    }
  }
}

TEST_CASE("a silent peer costs a handshake its time limit, and no more", "[security]") {
  const credentials key = blue();
  tls_pair p{key, key};
  const auto outcome = p.executor.run(as_result(
      with_timeout(p.server.shake_hands(tls_role::server, {}), std::chrono::milliseconds{1})));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::timed_out);
}

TEST_CASE("a handshake over another's channel leaves that channel behind", "[security]") {
  executor unused;
  const credentials key = blue();
  wire w{unused};
  {
    tls_channel client{key, w.client};
    tls_channel server{key, w.server};
    w.loop.run(when_all(client.shake_hands(tls_role::client, {}),
                        server.shake_hands(tls_role::server, {})));
  }
  w.client.deliver(bytes_of("x"));
  std::vector<std::byte> got(1);
  w.loop.run(read_exactly(w.server, got));
  CHECK(got == bytes_of("x"));
}

TEST_CASE("a peer that refused and hung up is heard, although it takes no more bytes",
          "[security]") {
  executor unused;
  both_kinds kinds;
  tls_wire w{unused, kinds.certificate, kinds.certificate};
  support::started client{w.loop.scheduler,
                          one_side(w.on_client, tls_role::client, "server.example", w.client_side)};
  support::started server{w.loop.scheduler,
                          one_side(w.on_server, tls_role::server, {}, w.server_side)};
  w.server.deliver(bytes_of("CRMA: no place left"));
  w.client.is_broken = true;
  w.loop.settle();
  CHECK(w.client_side.failed_with(errc::refused));
  CHECK(w.on_client.clear() != nullptr);
  server.request_stop();
  w.loop.settle();
}

TEST_CASE("one set of credentials serves handshakes on many threads", "[security]") {
  const authority ca;
  const credentials key = credentials::psk({"blue", secret_of(1)}, {"green", secret_of(2)});
  const credentials certificate = ca.issue();
  std::array<int, 4> good{};
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < good.size(); ++i) {
    threads.emplace_back([&, i] {
      executor own;
      for (int round = 0; round < 10; ++round) {
        for (const credentials* kind : {&key, &certificate}) {
          tls_wire w{own, *kind, *kind};
          w.shake_hands();
          good[i] += w.both_succeeded() ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& t : threads) t.join();
  for (const int count : good) CHECK(count == 20);
}
