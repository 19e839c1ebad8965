#include "../../lib/connection/link.hpp"

#include "connection/bootstrap.hpp"
#include "connection/handshake_set.hpp"
#include "security/certificates.hpp"
#include "security/tls_pair.hpp"
#include "security/values.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <chrono>

// The texts that the sides of a handshake send when one does not take the other.

using namespace cordma;
using namespace cordma::test;
using Catch::Matchers::Contains;

namespace {

/// The ways of both sides, over a socket pair.
struct linked {
  cordma::executor executor;
  socket_pair sockets;
  detail::link client{stream_socket{executor, std::move(sockets.left)}, "server.example"};
  detail::link server{stream_socket{executor, std::move(sockets.right)}};
};

/// Secures one side, and ends its way as connections do if that fails.
task<> secure(detail::link& peer_link, const credentials& used, tls_role role,
              result<void>& outcome) {
  outcome = co_await as_result(peer_link.secure(&used, role));
  if (!outcome.has_failure()) co_return;
  if (role == tls_role::server) {
    co_await bootstrap::refuse(peer_link.refusal_channel(), peer_link.for_peer(outcome.failure()));
  }
  peer_link.refusal_channel().end_writing();
}

}  // namespace

TEST_CASE("a client that does not take a certificate tells the server that, and not why",
          "[security]") {
  const authority ours;
  const authority foreign{"another authority"};
  const credentials good = ours.issue();
  const credentials stranger = foreign.issue();
  linked sides;
  result<void> of_client;
  result<void> of_server;
  sides.executor.run(when_all(secure(sides.client, good, tls_role::client, of_client),
                              secure(sides.server, stranger, tls_role::server, of_server)));
  REQUIRE(of_client.has_failure());
  CHECK(of_client.failure().code == make_error_code(errc::not_authenticated));
  CHECK_THAT(of_client.failure().to_string(), Contains("no authority in"));
  REQUIRE(of_server.has_failure());
  CHECK(of_server.failure().code == make_error_code(errc::not_authenticated));
  CHECK_THAT(of_server.failure().to_string(),
             Contains("the peer says: your key or certificate does not fit"));
}

TEST_CASE("a client that is dropped before it is known is told of the limit, and of no proof",
          "[security]") {
  const credentials key = blue();
  linked sides;
  const auto waited = sides.executor.run(as_result(
      with_timeout(sides.server.secure(&key, tls_role::server), std::chrono::milliseconds{1})));
  REQUIRE(waited.has_failure());  // The client is silent: nobody is known.
  const failure told = sides.server.for_peer(detail::dropped_at("handshakes_max", 64));
  CHECK(told.code == make_error_code(errc::refused));
  CHECK_THAT(told.to_string(), Contains("handshakes_max is 64"));
  const failure broken{.code = errc::bad_handshake, .call = "TLS", .detail = "this is no TLS"};
  CHECK(sides.server.for_peer(broken).code == make_error_code(errc::not_authenticated));
  CHECK(sides.server.for_peer(broken).detail.empty());
}
