// Handshakes over rdma_cm that fail in the middle: each side is told why, and the next is served.
#include "cm_peers.hpp"

#include "connection/bootstrap.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using test::cm_runtime;
using test::cm_speaker;

namespace {

/// Returns the verdict for a client that says hello and then nothing.
task<failure> told_after_hello(cm_speaker& client) {
  co_await client.say_hello();
  result<handshake::received_hello> hello =
      co_await as_result(bootstrap::read_hello(*client.channel));
  if (hello.has_failure()) co_return hello.failure();
  const result<void> verdict = co_await as_result(bootstrap::read_acceptance(*client.channel, {}));
  co_return verdict.has_failure() ? verdict.failure() : failure{};
}

void check_that_the_next_is_served(cm_runtime& r, listener& acceptor) {
  auto [client, server] =
      r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  test::check_that_messages_pass(r.rt, client, server);
}

}  // namespace

TEST_CASE("a client of rdma_cm that disagrees is told both sides' values, and the next is served",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  listener acceptor = r.listen({.fabric = {.service_level = 2}});
  const failure told =
      r.failure_of(r.rt.connect(acceptor.local_endpoint(), {.fabric = {.service_level = 1}}));
  CHECK(told.code == make_error_code(errc::incompatible_peer));
  CHECK_THAT(told.to_string(), Catch::Contains("service level 2 here, 1 there"));
  CHECK(acceptor.counters().rejected == 1);
  check_that_the_next_is_served(r, acceptor);
}

TEST_CASE("a client of rdma_cm that says hello and falls silent is told at the deadline",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  listener acceptor = r.listen({}, {.handshake_timeout = 100ms});
  cm_speaker client{r};
  r.rt.run(client.connect(r.address_of(acceptor)));
  const failure told = r.rt.run(told_after_hello(client));
  CHECK(told.code == make_error_code(errc::timed_out));
  CHECK(acceptor.counters().rejected == 1);
  check_that_the_next_is_served(r, acceptor);
}

TEST_CASE("a client of rdma_cm may refuse what the listener says, and the next is served",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  listener acceptor = r.listen();
  cm_speaker client{r};
  r.rt.run(client.connect(r.address_of(acceptor)));
  const auto refuse = [&]() -> task<> {
    co_await client.say_hello();
    static_cast<void>(co_await bootstrap::read_hello(*client.channel));
    const failure why{.code = errc::refused, .detail = "no, thanks"};
    co_await bootstrap::refuse(*client.channel, why);
  };
  r.rt.run(refuse());
  REQUIRE(acceptor.counters().rejected == 1);
  CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains("no, thanks"));
  check_that_the_next_is_served(r, acceptor);
}

TEST_CASE("a hello that names another agent than rdma_cm has connected is refused",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  listener acceptor = r.listen();
  cm_speaker client{r};
  r.rt.run(client.connect(r.address_of(acceptor)));
  ++client.state->local_hello.agent.qpn;
  const failure told = r.rt.run(told_after_hello(client));
  CHECK(told.code == make_error_code(errc::bad_handshake));
  CHECK_THAT(told.to_string(), Catch::Contains("not the one that rdma_cm has connected"));
  check_that_the_next_is_served(r, acceptor);
}

TEST_CASE("a client of rdma_cm with no agent, or one of another version, is told so",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  listener acceptor = r.listen();
  {
    cm_speaker client{r};
    r.rt.run(client.connect(r.address_of(acceptor)));
    client.state->local_hello.agent.version = 9;
    const failure told = r.rt.run(told_after_hello(client));
    CHECK(told.code == make_error_code(errc::incompatible_peer));
    CHECK_THAT(told.to_string(), Catch::Contains("version 3 here, 9 there"));
  }
  cm_speaker client{r};
  r.rt.run(client.connect(r.address_of(acceptor)));
  client.state->local_hello.agent.qpn = 0;
  CHECK(r.rt.run(told_after_hello(client)).code == make_error_code(errc::bad_handshake));
  check_that_the_next_is_served(r, acceptor);
}

namespace {

struct refusal {
  failure of_client;
  failure told;
};

/// Lets a client connect to a listener whose hello `change` has changed.
refusal refusal_of_hello(callback<void(handshake::hello&)> change) {
  cm_runtime r;
  cm::listener from{r.events(), r.address};
  cm_speaker server{r};
  const auto answer = [&]() -> task<failure> {
    co_await server.accept(from);
    static_cast<void>(co_await bootstrap::read_hello(*server.channel));
    change(server.state->local_hello);
    co_await server.say_hello();
    const result<void> verdict =
        co_await as_result(bootstrap::read_acceptance(*server.channel, {}));
    co_return verdict.has_failure() ? verdict.failure() : failure{};
  };
  auto [made, told] = r.rt.run(
      when_all(as_result(r.rt.connect(cm_runtime::by_cm(from.local_address()))), answer()));
  REQUIRE(made.has_failure());
  return {made.failure(), told};
}

}  // namespace

TEST_CASE("a client of rdma_cm refuses a listener's agent of another version, and tells it",
          "[connection][device][rdma_cm][N2]") {
  const refusal why = refusal_of_hello([](handshake::hello& hello) { hello.agent.version = 9; });
  CHECK_THAT(why.of_client.to_string(), Catch::Contains("version 3 here, 9 there"));
  CHECK(why.told.code == make_error_code(errc::incompatible_peer));
}

TEST_CASE("a client of rdma_cm refuses a hello that is not that of the listener's start",
          "[connection][device][rdma_cm][N2]") {
  const refusal why =
      refusal_of_hello([](handshake::hello& hello) { hello.nonce = handshake::random_nonce(); });
  CHECK(why.of_client.code == make_error_code(errc::bad_handshake));
  CHECK_THAT(why.told.to_string(), Catch::Contains("the hello is not that of the start"));
}

TEST_CASE("a client of rdma_cm that never confirms its queue pair is let go at the deadline",
          "[connection][device][rdma_cm][N2]") {
  cm_runtime r;
  listener acceptor = r.listen({}, {.handshake_timeout = 100ms});
  cm::id client{r.events()};
  const auto start = handshake::encode(handshake::start{.nonce = handshake::random_nonce()});
  const auto knock = [&]() -> task<> {
    co_await client.resolve(r.address_of(acceptor));
    co_await client.connect(0x123, start, cm::parameters{});
    co_await test::until(r.rt.executor(), [&] { return client.why_ended().has_value(); });
  };
  r.rt.run(knock());
  CHECK(acceptor.counters().rejected == 1);
  CHECK(acceptor.last_rejection()->code == make_error_code(errc::timed_out));
  check_that_the_next_is_served(r, acceptor);
}
