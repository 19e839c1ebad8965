// A host that dies is not noticed by rdma_cm: the heartbeat asks.
#include "cm_peers.hpp"

#include "agent/agent.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;
using test::cm_runtime;

namespace {

/// The device of this side answers nothing any more. rdma_cm says nothing, as where a host dies.
void die_silently(connection& c) {
  c.agent()->control().verbs().to_reset();
  c.qp().verbs().to_reset();
}

/// How the server's wait for a message ends when the client dies.
result<message> end_of_wait(const connection_options& of_client,
                            const connection_options& of_server, duration limit) {
  cm_runtime r;
  listener acceptor = r.listen(of_server);
  auto [client, server] =
      r.rt.run(when_all(r.rt.connect(acceptor.local_endpoint(), of_client), acceptor.accept()));
  die_silently(client);
  auto ended = r.rt.run(as_result(with_timeout(server.next_message(), limit)));
  CHECK_FALSE(server.was_closed_by_peer());
  return ended;
}

connection_options not_beating() {
  connection_options o;
  o.heartbeat.enabled = false;
  o.close_timeout = 200ms;
  return o;
}

}  // namespace

TEST_CASE("by rdma_cm the heartbeat finds a dead host, whether it grants writes or not",
          "[connection][device][rdma_cm][C8]") {
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  const bool has_key = GENERATE(false, true);
  const bool has_writes = GENERATE(true, false);
  // 4 ms a try, or hours: the device then finds out nothing.
  const auto timeout = GENERATE(std::uint8_t{10}, std::uint8_t{31});
  connection_options of_client = not_beating();
  of_client.timeout = timeout;
  if (!has_writes) of_client.remote_access = verbs::access::remote_read;
  connection_options of_server = of_client;
  of_server.heartbeat = {.enabled = true, .interval = 20ms, .misses = 3};
  if (has_key) of_client.credentials = of_server.credentials = &key;
  const auto ended = end_of_wait(of_client, of_server, 60s);
  REQUIRE(ended.has_failure());
  const std::error_code why = ended.failure().code;
  INFO(ended.failure().to_string());
  CHECK((why == errc::disconnected || why == wc_errc::retry_exceeded));
}

TEST_CASE("by rdma_cm a dead host goes unnoticed without a heartbeat",
          "[connection][device][rdma_cm][C8]") {
  const auto ended = end_of_wait(not_beating(), not_beating(), 200ms);
  REQUIRE(ended.has_failure());
  CHECK(ended.failure().code == make_error_code(errc::timed_out));
}
