// What a call costs between two processes, beside messages by raw verbs. Linked first: it forks.

#include "support/ping_pong.hpp"
#include "support/rpc_echo.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <chrono>
#include <optional>
#include <thread>
#include <vector>

namespace {

using bench::latencies;
using cordma::task;

/// Orders beyond those of ping-pongs.
constexpr unsigned be_server = 1u << 16, answer = 2u << 16;

void serve(bench::link_end& there, unsigned what, std::uint64_t n) {
  static std::optional<bench::serving> server;
  switch (what) {
    case be_server: server.emplace().begin({"127.0.0.1", std::uint16_t(n)}); break;
    case answer: server->reply(n); break;
    default: bench::ping_pong::serve(there, what, n);
  }
}

task<> call_each(cordma::rpc::client& c, bench::view request, latencies& to) {
  to.start();
  for (std::uint64_t n = to.round(); n > 0; --n) {
    static_cast<void>(co_await c.call<bench::echo>(request));
    to.lap();
  }
}

}  // namespace

BENCH_ON_DEVICE("rpc/processes", "What does a call cost, its server in another process?") {
  if (std::thread::hardware_concurrency() < 2) return;
  bench::two_processes both{&serve, bench::echo_bytes};
  cordma::runtime rt{bench::busy()};
  cordma::listener door{rt.listen()};
  both.order(be_server, door.local_endpoint().port);
  cordma::rpc::client calling{rt.run(cordma::with_timeout(door.accept(), std::chrono::seconds{10})),
                              bench::of_client};
  const std::vector<std::byte> request(bench::echo_bytes);
  bench::compare_latencies(
      recorder, "32 B, depth 1", {500, 1000, 20},
      [&](latencies& to) {
        bench::ping_pong::raw(both, bench::ball::send, bench::noticing::busy, to);
      },
      [&](latencies& to) {
        both.order(answer, to.round());
        rt.run(call_each(calling, request, to));
      });
}
