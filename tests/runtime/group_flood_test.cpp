// Clients that connect to a group and shake no hands.

#include "support/runtime_group.hpp"
#include "support/silent_client.hpp"

#include <catch2/catch.hpp>

#include <array>

using namespace cordma;
using namespace std::chrono_literals;
using test::group_of;

namespace {

task<> keep_open(runtime&, unsigned, connection conn) {
  static_cast<void>(co_await as_result(conn.next_message()));
}

}  // namespace

TEST_CASE("a flood of silent clients keeps no real client from a group",
          "[runtime][device][floods][N5]") {
  serve_options options;
  int permits = 0;
  std::string limit;
  SECTION("handshakes_max") {
    options.handshakes_max = 2;
    permits = 4;
    limit = "handshakes_max is 2";
  }
  SECTION("connections_max") {
    options.connections_max = 3;
    permits = 3;
    limit = "connections_max is 3";
  }
  std::array<std::string, 2> told;
  options.on_failure = [&](unsigned index, const handler_failure& f) {
    told[index] += f.to_string();
  };
  runtime_group group{group_of(2)};
  const group_listener& acceptor = group.serve({}, &keep_open, options);
  runtime rt{test::on_test_device()};
  const auto silent =
      test::silent_clients(rt.executor(), "127.0.0.2", acceptor.local_endpoint().port, permits);
  const connection real = rt.run(rt.connect(acceptor.local_endpoint()));
  CHECK(real.is_open());
  CHECK(acceptor.counters().dropped >= 1);
  CHECK(acceptor.counters().rejected == 0);
  group.stop();
  group.wait();
  CHECK_THAT(told[0] + told[1], Catch::Contains("dropped for a newer client: " + limit));
  CHECK(acceptor.counters().connected == 1);
}
