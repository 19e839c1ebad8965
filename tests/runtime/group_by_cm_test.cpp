#include "connection/cm_peers.hpp"
#include "support/leaks.hpp"
#include "support/runtime_group.hpp"
#include "support/skip.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <latch>
#include <string>
#include <vector>

using namespace cordma;
using test::cm_runtime;
using test::group_of;

namespace {

/// Strangers reach the address of a device that is not soft0.
serve_options for_strangers() {
  serve_options options;
  options.connections.insecure = true;
  return options;
}

/// Sends back the messages that come, until the client closes or the group is stopped.
task<> echo(runtime& rt, unsigned, connection conn) {
  local_mr memory = rt.memory().allocate_zeroed(8);
  for (;;) {
    const auto m = co_await as_result(conn.recv(memory.slice()));
    if (!m.has_value()) co_return;
    static_cast<void>(co_await conn.send(memory.slice()));
  }
}

task<std::byte> echoed(runtime& rt, connection& conn, std::byte word) {
  local_mr memory = rt.memory().allocate_zeroed(16);
  memory.bytes()[8] = word;
  static_cast<void>(
      co_await when_all(conn.recv(memory.slice(0, 8)), conn.send(memory.slice(8, 8))));
  co_return memory.bytes()[0];
}

}  // namespace

TEST_CASE("a group that listens by rdma_cm spreads its connections evenly over the threads",
          "[runtime][device][rdma_cm]") {
  constexpr unsigned threads = 3;
  std::array<std::atomic<unsigned>, threads> taken{};
  cm_runtime r;
  runtime_group group{group_of(threads)};
  const auto handler = [&](runtime& rt, unsigned index, connection conn) {
    if (&rt == &group[index]) ++taken[index];
    return echo(rt, index, std::move(conn));
  };
  const group_listener& acceptor = group.serve(r.here(), handler, for_strangers());
  CHECK(acceptor.local_endpoint().to_string().starts_with("rdma_cm:"));
  CHECK(acceptor.local_endpoint().port != 0);
  std::vector<connection> clients;
  for (unsigned i = 0; i < 2 * threads; ++i) {
    clients.push_back(r.rt.run(r.rt.connect(acceptor.local_endpoint())));
    CHECK(r.rt.run(echoed(r.rt, clients.back(), std::byte(i))) == std::byte(i));
  }
  for (const auto& count : taken) CHECK(count == 2);
  CHECK(acceptor.counters().connected == 2 * threads);
}

TEST_CASE("a group serves plain clients by rdma_cm on each of its threads",
          "[runtime][device][rdma_cm]") {
  cm_runtime r;
  runtime_group group{group_of(2)};
  serve_options options = for_strangers();
  options.connections.plain = true;
  const endpoint where = group.serve(r.here(), &echo, options).local_endpoint();
  std::vector<connection> clients;
  for (unsigned i = 0; i < 4; ++i) {
    clients.push_back(r.rt.run(r.rt.connect(where, {.plain = true})));
    CHECK(r.rt.run(echoed(r.rt, clients.back(), std::byte(i))) == std::byte(i));
  }
}

TEST_CASE("a group tells a client by rdma_cm why it is refused, and serves the next",
          "[runtime][device][rdma_cm]") {
  cm_runtime r;
  std::latch told{2};
  runtime_group group{group_of(2)};
  serve_options options = for_strangers();
  options.admit = [](connection_request& request) {
    if (request.private_data[0] == std::byte{1}) request.refuse("that shard is elsewhere");
  };
  options.on_failure = [&](unsigned, const handler_failure& failed) {
    if (failed.to_string().find("that shard is elsewhere") != std::string::npos) told.count_down();
  };
  const group_listener& acceptor = group.serve(r.here(), &echo, options);
  connection_changes stranger;
  stranger.private_data = {std::byte{1}};
  for (int n = 0; n < 2; ++n) {
    const failure why = r.failure_of(r.rt.connect(acceptor.local_endpoint(), stranger));
    CHECK(why.code == make_error_code(errc::refused));
    CHECK(why.to_string().find("that shard is elsewhere") != std::string::npos);
  }
  told.wait();
  connection next = r.rt.run(r.rt.connect(acceptor.local_endpoint()));
  CHECK(r.rt.run(echoed(r.rt, next, std::byte{7})) == std::byte{7});
  CHECK(acceptor.counters().rejected == 2);
}

TEST_CASE("a stop of a group ends its connections by rdma_cm, and nobody listens there any more",
          "[runtime][device][rdma_cm]") {
  cm_runtime r;
  runtime_group group{group_of(2)};
  const endpoint where = group.serve(r.here(), &echo, for_strangers()).local_endpoint();
  std::vector<connection> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(r.rt.run(r.rt.connect(where)));
  group.stop();
  group.wait();
  for (connection& client : clients) {
    const auto m = r.rt.run(as_result(client.next_message()));
    REQUIRE(m.has_failure());
    CHECK(m.failure().code == make_error_code(errc::disconnected));
  }
  CHECK(r.failure_of(r.rt.connect(where)).code == std::errc::connection_refused);
}

TEST_CASE("a client by rdma_cm gets a thread that has the device which it has come to",
          "[runtime][device][rdma_cm]") {
  cm_runtime r;
  std::string other;
  for (const auto& each : verbs::list_devices())
    if (each.name != r.rt.device_name()) other = each.name;
  if (other.empty()) CORDMA_SKIP("there is one device");
  std::atomic<unsigned> misplaced = 0;
  const auto each = [&](unsigned index) {
    runtime_options options = test::on_test_device();
    if (index != 1) options.device = other;
    return options;
  };
  runtime_group group{{.each = each, .threads = 3}};
  const auto handler = [&](runtime& rt, unsigned index, connection conn) {
    if (index != 1) ++misplaced;
    return echo(rt, index, std::move(conn));
  };
  const endpoint where = group.serve(r.here(), handler, for_strangers()).local_endpoint();
  for (int i = 0; i < 4; ++i) {
    connection client = r.rt.run(r.rt.connect(where));
    CHECK(r.rt.run(echoed(r.rt, client, std::byte{1})) == std::byte{1});
  }
  CHECK(misplaced == 0);
}
