// Errors of a connection say what can be done about them.

#include "support/connected_pair.hpp"
#include "support/skip.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using Catch::Matchers::Contains;
using test::connected_pair;

TEST_CASE("a SEND that finds no receive says to post receives before", "[connection][device]") {
  connected_pair p{{}, test::never_not_ready(), {}};
  const auto outcome = p.rt.run(as_result(p.client.send(p.rt.memory().allocate_zeroed(8))));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == wc_errc::rnr_retry_exceeded);
  CHECK_THAT(outcome.failure().to_string(), Contains("post receives before") &&
                                                Contains("rnr_retry") && Contains("min_rnr_timer"));
  REQUIRE(p.client.why_lost());
  CHECK_THAT(p.client.why_lost()->to_string(),
             Contains(p.client.peer().to_string() + ": ") && Contains("post receives before"));
}

TEST_CASE("a message longer than its receive says so on both sides", "[connection][device]") {
  if (test::is_rxe()) CORDMA_SKIP("rxe has codes of its own for it");
  connected_pair p;
  local_mr memory = p.rt.memory().allocate_zeroed(64);
  auto [received, sent] = p.rt.run(when_all(as_result(p.server.recv(memory.slice(0, 8))),
                                            as_result(p.client.send(memory.slice(0, 64)))));
  REQUIRE(received.has_failure());
  CHECK(received.failure().code == wc_errc::local_length);
  CHECK_THAT(received.failure().to_string(),
             Contains("longer than the receive that it met") && Contains("message_stream"));
  REQUIRE(sent.has_failure());
  CHECK(sent.failure().code == wc_errc::remote_invalid_request);
  CHECK_THAT(sent.failure().to_string(),
             Contains("longer than the receive") && Contains("message_stream"));
}

TEST_CASE("a peer that does not answer points to the device's own network", "[connection]") {
  const request_outcome how{.code = wc_errc::retry_exceeded, .call = "ibv_poll_cq"};
  CHECK_THAT(how.to_failure(1).to_string(),
             Contains("transport retry counter exceeded: the peer's device does not answer") &&
                 Contains("docs/devices.md"));
}

TEST_CASE("the longest error of a request over XRC is not cut", "[connection]") {
  const auto text_of = [](std::error_code code) {
    const request_failure why{
        .how = {.code = code, .call = "post_send"}, .qp_num = 1, .receive_queue = ~0u};
    return std::string{why.to_failure().detail.view()};
  };
  CHECK_THAT(text_of(errc::not_supported),
             Catch::StartsWith("receive queue 4294967295: ") && Catch::EndsWith("is a SEND"));
  CHECK_THAT(text_of(wc_errc::remote_invalid_request), Catch::EndsWith("nor atomics go"));
  CHECK_THAT(text_of(wc_errc::retry_exceeded), Catch::EndsWith("what soft0 needs"));
  CHECK_THAT(text_of(wc_errc::rnr_retry_exceeded), Catch::EndsWith("min_rnr_timer)"));
}

TEST_CASE("a policy that grants nothing names bytes_max, and the server knows who asked for what",
          "[connection][agent][device]") {
  connected_pair p;
  CHECK_FALSE(p.server.last_refusal());
  const remote_mr_request terms{.access = verbs::access::remote_read};
  const auto outcome = p.rt.run(as_result(p.client.request_remote_mr(4711, terms)));
  REQUIRE(outcome.has_failure());
  CHECK(outcome.failure().code == errc::access_denied);
  CHECK_THAT(outcome.failure().to_string(),
             Contains("bytes_max") && Contains("connection_options::agent.lending"));
  REQUIRE(p.server.last_refusal());
  CHECK_THAT(p.server.last_refusal()->to_string(),
             Contains("peer " + p.server.peer().to_string()) &&
                 Contains("asked for 4711 bytes of remote_read") && Contains("bytes_max is 0"));
  CHECK_FALSE(p.client.last_refusal());
}

TEST_CASE("a policy that grants something else says what was too much",
          "[connection][agent][device]") {
  connection_options lends;
  lends.agent.lending.bytes_max = 4096;
  lends.agent.lending.access_max = verbs::access::remote_read;
  connected_pair p{{}, {}, lends};
  const auto refusal_of = [&](std::size_t bytes, verbs::access access) {
    const auto outcome = p.rt.run(as_result(p.client.request_remote_mr(bytes, {.access = access})));
    return outcome.has_failure() ? outcome.failure().to_string() : "granted";
  };
  CHECK_THAT(refusal_of(64, verbs::access::remote_write), Contains("access_max"));
  CHECK_THAT(p.server.last_refusal()->to_string(), Contains("access_max"));
  CHECK_THAT(refusal_of(8192, verbs::access::remote_read), Contains("bytes_max, 4096 at once"));
  CHECK_THAT(p.server.last_refusal()->to_string(),
             Contains("asked for 8192 bytes") && Contains("more than is left"));
}

TEST_CASE("an error of connecting names the address once", "[connection][device]") {
  runtime rt{test::on_test_device()};
  endpoint gone;
  {
    const listener acceptor = rt.listen();
    gone = acceptor.local_endpoint();
  }
  rt.run(rt.executor().sleep_for({}));  // The listener goes meanwhile.
  const auto text_of = [&](const endpoint& server) {
    const auto outcome = rt.run(as_result(rt.connect(server)));
    return outcome.has_failure() ? outcome.failure().to_string() : "connected";
  };
  const auto count = [](const std::string& text, const std::string& what) {
    int n = 0;
    for (auto at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  const std::string refused = text_of(gone);
  INFO(refused);
  CHECK(count(refused, gone.to_string()) == 1);
  CHECK_THAT(refused, Contains("to " + gone.to_string() + ": nobody listens there"));
  const std::string by_name = text_of({"localhost", gone.port});
  INFO(by_name);
  CHECK_THAT(by_name, Contains("to localhost:"));
  const std::string nowhere = text_of({"::1::2", 80});
  INFO(nowhere);
  CHECK(count(nowhere, "::1::2") == 1);
  CHECK_THAT(text_of({"", 80}), Contains("no host is given"));
}
