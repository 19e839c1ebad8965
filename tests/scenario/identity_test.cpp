// The peer's identity decides what the peer gets: its loans, and what its calls are answered.
#include "scenario/proofs.hpp"
#include "support/connected_pair.hpp"
#include "support/outcome.hpp"
#include "support/unreliable.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/rpc/client.hpp>
#include <cordma/rpc/server.hpp>

#include <catch2/catch.hpp>

#include <map>
#include <span>
#include <string>
#include <utility>

using namespace cordma;

namespace {

using text = std::span<const std::byte>;
/// Answers with the name of who asks.
struct whoami : rpc::method<"test.whoami", text, text> {};

std::string string_of(text bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A server of calls that knows two keys, and lends each key's owner so many bytes.
struct key_server {
  key_server() {
    server.handle<whoami>([this](text, rpc::server_call& call) -> task<text> {
      const std::string& name = call.connection().peer_identity().name;
      kinds_seen[name] = call.connection().peer_identity().kind;
      co_return std::as_bytes(std::span{name});
    });
  }

  /// Gives the client's connection, of which the server's other end is served.
  task<connection> join(scope& work, const credentials& key) {
    auto [client, here] = co_await when_all(
        rt.connect(acceptor.local_endpoint(), {.credentials = &key}), acceptor.accept());
    work.spawn(server.serve(std::move(here)));
    co_return std::move(client);
  }

  const credentials small = test::key_named("small", 1);
  const credentials large = test::key_named("large", 2);
  const credentials both = credentials::psk({"small", std::vector(32, std::byte{1})},
                                            {"large", std::vector(32, std::byte{2})});
  const std::map<std::string, std::size_t> bytes_of{{"small", 4096}, {"large", 65536}};
  std::map<std::string, authentication> kinds_seen;
  runtime rt{test::on_test_device()};
  rpc::server server;
  listener acceptor = rt.listen({},
                                {.admit =
                                     [this](connection_request& request) {
                                       request.lending.bytes_max =
                                           bytes_of.at(request.peer_identity.name);
                                     }},
                                {.credentials = &both});
};

}  // namespace

TEST_CASE("each client is lent as much as its name may have, and calls see who makes them",
          "[scenario][device]") {
  key_server s;
  std::map<std::string, std::string> answers;
  const auto check_client = [&](scope& work, const credentials& key, std::string name) -> task<> {
    connection conn = co_await s.join(work, key);
    const std::size_t allowed = s.bytes_of.at(name);
    {
      const remote_mr granted = co_await conn.request_remote_mr(allowed);
      CHECK(granted.size_bytes() == allowed);
    }
    const auto refused = co_await as_result(conn.request_remote_mr(allowed + 1));
    CHECK(test::code_of(refused) == make_error_code(errc::limit_exceeded));
    rpc::client caller{std::move(conn)};
    const auto answer = co_await caller.call<whoami>(text{});
    answers[name] = string_of(*answer);
    co_await caller.close();
  };
  s.rt.run(with_scope([&](scope& work) -> task<> {
    co_await when_all(check_client(work, s.small, "small"), check_client(work, s.large, "large"));
  }));
  CHECK(answers == std::map<std::string, std::string>{{"small", "small"}, {"large", "large"}});
  CHECK(s.kinds_seen == std::map<std::string, authentication>{{"small", authentication::psk},
                                                              {"large", authentication::psk}});
}

TEST_CASE("certificates bind a connection over UC to who the peer is", "[scenario][device]") {
  const test::proofs proofs;
  connection_options of_server = test::unreliable(), of_client = test::unreliable();
  of_server.credentials = proofs.of_server(authentication::certificate);
  of_client.credentials = proofs.of_client(authentication::certificate, true);
  test::connected_pair p{{}, of_client, of_server};
  CHECK(p.client.peer_identity().name == "127.0.0.1");
  CHECK(p.client.peer_identity().kind == authentication::certificate);
  CHECK(p.server.peer_identity().name == "client.example");
  CHECK(p.server.peer_identity().kind == authentication::certificate);
  test::check_that_uc_carries_all(p.rt, p.client, p.server);
  test::check_that_uc_carries_all(p.rt, p.server, p.client);
}
