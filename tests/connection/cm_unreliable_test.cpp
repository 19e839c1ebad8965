// Connections over UC whose agents rdma_cm connects.
#include "cm_peers.hpp"
#include "support/unreliable.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <utility>

using namespace cordma;
using test::cm_runtime;
using test::unreliable;

TEST_CASE("by rdma_cm two sides connect over UC, and a lost message is lost",
          "[connection][device][rdma_cm]") {
  cm_runtime r;
  listener acceptor = r.listen(unreliable());
  auto [client, server] =
      r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint(), unreliable()), acceptor.accept()));
  CHECK(client.verbs().type() == verbs::queue_pair_type::uc);
  test::check_that_uc_carries_all(r.rt, client, server);
  test::check_that_uc_carries_all(r.rt, server, client);
  test::check_that_a_lost_message_is_lost(r.rt, client, server);
  r.rt.run(when_all(client.close(), server.close()));
}

TEST_CASE("by rdma_cm a peer whose transport differs is told both",
          "[connection][device][rdma_cm]") {
  cm_runtime r;
  listener acceptor = r.listen(unreliable());
  const failure told = r.failure_of(r.rt.connect(acceptor.local_endpoint()));
  CHECK(told.code == make_error_code(errc::incompatible_peer));
  CHECK_THAT(told.to_string(), Catch::Contains("transport UC here, RC there"));
}

TEST_CASE("by rdma_cm a wait over UC ends when the peer drops the connection",
          "[connection][device][rdma_cm]") {
  cm_runtime r;
  listener acceptor = r.listen(unreliable());
  auto [client, server] =
      r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint(), unreliable()), acceptor.accept()));
  client = {};
  const auto ended = r.rt.run(as_result(server.next_message()));
  REQUIRE(ended.has_failure());
  CHECK(ended.failure().code == make_error_code(errc::disconnected));
}

TEST_CASE("a plain connection by rdma_cm is not UC, and says what to do",
          "[connection][device][rdma_cm]") {
  cm_runtime r;
  connection_options options = unreliable();
  options.plain = true;
  CHECK_THROWS_WITH(r.listen(options), Catch::Contains("connect_plain"));
}
