#include <cordma/connection/listener.hpp>

#include "support/connected_pair.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace cordma;

TEST_CASE("each side has the other's private data", "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::array<std::byte, 64> ours{};
  std::array<std::byte, 64> theirs{};
  ours.fill(std::byte{0x11});
  theirs.fill(std::byte{0x22});
  listener acceptor = rt.listen({}, {}, {.private_data = theirs});
  auto [client, server] = rt.run(
      when_all(rt.connect(acceptor.local_endpoint(), {.private_data = ours}), acceptor.accept()));
  CHECK(client.peer_private_data() == theirs);
  CHECK(server.peer_private_data() == ours);
}

TEST_CASE("a program admits clients by their private data, and answers with its own",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  std::string asked;
  const auto admit = [&](connection_request& request) {
    asked = request.peer.to_string();
    request.reply[0] = std::byte{42};
    request.lending.bytes_max = 4096;
    if (request.private_data[0] == std::byte{1}) request.refuse("shard 1 lives elsewhere");
    if (request.private_data[0] == std::byte{2}) throw std::runtime_error{"no such table"};
    if (request.private_data[0] == std::byte{3}) throw 5;
  };
  listener acceptor = rt.listen({}, {.admit = admit});
  const auto connect_as = [&](int number) {
    std::array<std::byte, 64> data{};
    data[0] = std::byte(number);
    return rt.connect(acceptor.local_endpoint(), {.private_data = data});
  };
  for (const auto& [number, reason] :
       {std::pair{1, "shard 1 lives elsewhere"}, std::pair{2, "no such table"},
        std::pair{3, "threw what is no std::exception"}}) {
    const auto refused = rt.run(as_result(connect_as(number)));
    REQUIRE(refused.has_failure());
    CHECK(refused.failure().code == make_error_code(errc::refused));
    CHECK_THAT(refused.failure().to_string(), Catch::Contains(reason));
    CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains(reason));
  }
  auto [client, server] = rt.run(when_all(connect_as(4), acceptor.accept()));
  CHECK(client.peer_private_data()[0] == std::byte{42});
  CHECK_THAT(asked, Catch::StartsWith("127.0.0.1:"));
  // The listener lends nothing but what the program granted this client.
  const remote_mr granted = rt.run(client.request_remote_mr(4096));
  CHECK(granted.size_bytes() == 4096);
  CHECK(acceptor.counters().rejected == 3);
}

TEST_CASE("a program may let one client have more leases than the listener's options do",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  connection_options lends;
  lends.agent.lending.bytes_max = 1 << 20;
  lends.agent.lending.leases_max = 1;
  constexpr unsigned leases = 4;
  const auto admit = [](connection_request& request) { request.lending.leases_max = leases; };
  listener acceptor = rt.listen({}, {.admit = admit}, lends);
  auto [client, server] =
      rt.run(when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept()));
  std::vector<remote_mr> held;
  for (unsigned n = 0; n < leases; ++n) held.push_back(rt.run(client.request_remote_mr(64)));
  CHECK(server.lending().open == leases);
  const auto more = rt.run(as_result(client.request_remote_mr(64)));
  REQUIRE(more.has_failure());
  CHECK(more.failure().code == make_error_code(errc::limit_exceeded));
}

TEST_CASE("a program that lends a client what no options may say has refused it",
          "[connection][device]") {
  runtime rt{test::on_test_device()};
  const auto admit = [](connection_request& request) { request.lending.leases_max = 0; };
  listener acceptor = rt.listen({}, {.admit = admit});
  const auto refused = rt.run(as_result(rt.connect(acceptor.local_endpoint())));
  REQUIRE(refused.has_failure());
  CHECK_THAT(refused.failure().to_string(), Catch::Contains("lending.leases_max"));
  CHECK_THAT(acceptor.last_rejection()->to_string(), Catch::Contains("lending.leases_max"));
}
