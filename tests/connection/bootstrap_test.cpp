#include "connection/bootstrap.hpp"

#include "support/some_hello.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <optional>

using namespace cordma;
using namespace std::chrono_literals;
using test::some_hello;

namespace {

/// Two ends of a TCP connection on one executor.
struct stream_pair {
  stream_pair() { executor.run(open()); }
  task<> open() {
    stream_listener acceptor{executor, socket_address::loopback(0)};
    auto [c, s] = co_await when_all(stream_socket::connect(executor, acceptor.local_address()),
                                    acceptor.accept());
    client.emplace(std::move(c));
    server.emplace(std::move(s));
  }
  cordma::executor executor;
  std::optional<stream_channel> client;
  std::optional<stream_channel> server;
};

task<> connect_side(byte_channel& s, std::uint32_t& peer_qpn) {
  co_await test::greet(s, some_hello(11));
  peer_qpn = (co_await bootstrap::read_hello(s)).qpn;
  co_await test::say_accepted(s);
  co_await bootstrap::read_acceptance(s, {});
}

task<> accept_side(byte_channel& s, std::uint32_t& peer_qpn) {
  peer_qpn = (co_await test::read_greeting(s)).qpn;
  co_await test::say(s, handshake::encode(some_hello(22)));
  co_await bootstrap::read_acceptance(s, {});
  co_await test::say_accepted(s);
}

failure outcome_of(stream_pair& p, task<> t) {
  const result<void> r = p.executor.run(as_result(std::move(t)));
  return r.has_failure() ? r.failure() : failure{};
}

task<> read_one(byte_channel& s) { static_cast<void>(co_await bootstrap::read_hello(s)); }

task<> write_bytes(byte_channel& s, std::string_view text) {
  co_await write_all(s, std::as_bytes(std::span{text}));
}

}  // namespace

TEST_CASE("two sides shake hands over TCP", "[connection]") {
  stream_pair p;
  std::uint32_t seen_by_client = 0;
  std::uint32_t seen_by_server = 0;
  p.executor.run(
      when_all(connect_side(*p.client, seen_by_client), accept_side(*p.server, seen_by_server)));
  CHECK(seen_by_client == 22);
  CHECK(seen_by_server == 11);
}

TEST_CASE("a refusal reaches the peer with its reason, even when it has sent too much",
          "[connection][N2]") {
  stream_pair p;
  p.executor.run(write_bytes(*p.client, std::string(20'000, 'x')));
  const failure why{.code = errc::bad_handshake, .call = "x", .detail = "too long a story"};
  // The refusing side waits for the other to close, so that its words are not lost with a RST.
  result<void> heard;
  auto refuse = [&]() -> task<> {
    co_await bootstrap::refuse(*p.server, why);
    p.server.reset();
  };
  auto listen = [&]() -> task<> {
    heard = co_await as_result(read_one(*p.client));
    p.client.reset();
  };
  p.executor.run(when_all(refuse(), listen()));
  REQUIRE(heard.has_failure());
  CHECK(heard.failure().code == make_error_code(errc::bad_handshake));
  CHECK(heard.failure().detail.view() == "the peer says: too long a story");
}

TEST_CASE("garbage is refused at its first bytes, without waiting for a whole frame",
          "[connection][N2]") {
  stream_pair p;
  p.executor.run(write_bytes(*p.client, "GET / HTTP/1.1\r\n\r\n"));
  const failure f = outcome_of(p, read_one(*p.server));
  CHECK(f.code == make_error_code(errc::bad_handshake));
  CHECK(f.to_string().find("47 45 54 20") != std::string::npos);
}

TEST_CASE("a peer that leaves in the middle of a frame is disconnected", "[connection][N2]") {
  stream_pair p;
  const auto bytes = handshake::encode(some_hello(5));
  p.executor.run(write_all(*p.client, std::span{bytes}.first(100)));
  p.client.reset();
  CHECK(outcome_of(p, read_one(*p.server)).code == make_error_code(errc::disconnected));
}

TEST_CASE("frames out of order are no handshake", "[connection][N2]") {
  stream_pair p;
  p.executor.run(test::say_accepted(*p.client));
  CHECK(outcome_of(p, read_one(*p.server)).code == make_error_code(errc::bad_handshake));
  p.executor.run(test::say(*p.client, handshake::encode(some_hello(5))));
  CHECK(outcome_of(p, bootstrap::read_acceptance(*p.server, {})).code ==
        make_error_code(errc::bad_handshake));
}

TEST_CASE("a deadline is told by what took longer than how long", "[connection][N4]") {
  const failure late{.code = errc::timed_out, .call = "with_timeout"};
  const failure named = bootstrap::name_timeout(late, "connect", 250ms);
  CHECK(named.to_string() == "connect: deadline passed: it took longer than 250 ms");
  const failure other{.code = errc::refused, .call = "x"};
  CHECK(bootstrap::name_timeout(other, "connect", 1s).call == std::string{"x"});
}
