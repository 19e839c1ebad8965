// Measures calls between two processes, beside messages by raw verbs. Linked first: it forks.

#include "support/ping_pong.hpp"
#include "support/rpc_serving.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using bench::bulk_bytes;
using bench::latencies;
using cordma::task;

/// Orders beyond those of ping-pongs.
constexpr unsigned be_server = 1u << 16, answer = 2u << 16, make_room = 3u << 16,
                   await_last = 4u << 16;

constexpr unsigned depth_max = 16;

/// A place in the server's memory. The server writes the places before it answers the first call.
struct remote_end {
  std::uint64_t address;
  std::uint32_t rkey;
};
using remote_ends = std::array<remote_end, 2 * depth_max>;
remote_ends* shared_remote_ends() {
  static void* const shared = ::mmap(nullptr, sizeof(remote_ends), PROT_READ | PROT_WRITE,
                                     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) throw std::runtime_error{"no memory to share"};
  return static_cast<remote_ends*>(shared);
}

void make_memory(bench::link_end& there, bench::serving& server, unsigned count) {
  static bench::raw_regions regions;
  regions.clear();
  server.to = bench::bulk_memory(server.rt, count);
  regions = bench::register_for_raw(there.domain(), server.to);
  std::ranges::transform(regions, shared_remote_ends()->begin(), [](const auto& region) {
    return remote_end{reinterpret_cast<std::uint64_t>(region.address()), region.rkey()};
  });
}

void serve(bench::link_end& there, unsigned what, std::uint64_t n) {
  static std::optional<bench::serving> server;
  switch (what) {
    case be_server: server.emplace().begin({"127.0.0.1", std::uint16_t(n)}); break;
    case answer: server->reply(n); break;
    case make_room: make_memory(there, *server, unsigned(n)); break;
    case await_last:
      there.raw(bench::noticing::busy).await_message();
      there.raw(bench::noticing::busy).post_receive(there.raw_receive());
      break;
    default: bench::ping_pong::serve(there, what, n);
  }
}

/// A client, with a server in the other process.
struct joined {
  explicit joined(bench::two_processes& both) {
    cordma::listener acceptor{rt.listen()};
    both.order(be_server, acceptor.local_endpoint().port);
    calling = cordma::rpc::client{
        rt.run(cordma::with_timeout(acceptor.accept(), std::chrono::seconds{10}))};
  }
  cordma::runtime rt{bench::busy()};
  cordma::rpc::client calling;
};

task<> call_each(cordma::rpc::client& c, bench::view request, latencies& to) {
  to.start();
  for (std::uint64_t n = to.round(); n > 0; --n) {
    static_cast<void>(co_await c.call<bench::echo>(request));
    to.lap();
  }
}

/// Does `n` WRITEs by raw verbs, then sends a message that tells the other process of the end.
void write_each(bench::two_processes& both, const bench::raw_regions& from, std::uint64_t n) {
  both.order(await_last, 1);
  bench::link_end& here = both.here();
  bench::raw_side& side = here.raw(bench::noticing::busy);
  for (std::uint64_t posted = 0, done = 0; done < n; ++done) {
    for (; posted < n && posted < done + from.size(); ++posted) {
      const cordma::verbs::memory_region& source = from[posted % from.size()];
      const remote_end& to = (*shared_remote_ends())[posted % from.size()];
      side.post(
          support::raw::request{IBV_WR_RDMA_WRITE,
                                support::raw::piece(source.address(), bulk_bytes, source.lkey()),
                                {to.address, to.rkey}});
    }
    side.await_sent();
  }
  side.post_seldom_signaled(here.raw_request(IBV_WR_SEND));
}

}  // namespace

BENCH_ON_DEVICE("rpc/processes", "What does a call cost, its server in another process?") {
  if (std::thread::hardware_concurrency() < 2) return;
  constexpr unsigned warm_up = 256;
  static_cast<void>(shared_remote_ends());
  bench::two_processes both{&serve, bench::echo_bytes};
  joined with{both};
  const std::vector<std::byte> request(bench::echo_bytes);
  bench::compare_latencies(
      recorder, "32 B, depth 1", {500, 1000, 20},
      [&](latencies& to) {
        bench::ping_pong::raw(both, bench::ball::send, bench::noticing::busy, to);
      },
      [&](latencies& to) {
        both.order(answer, to.round());
        with.rt.run(call_each(with.calling, request, to));
      });
  // A call with a source, beside a WRITE.
  recorder.set_round_length(bench::bulk_round);
  for (const unsigned depth : {2u, depth_max}) {
    // Each side keeps what it once needed.
    both.order(make_room, 2 * depth);
    both.order(answer, warm_up);
    bench::putting{with.rt, with.calling, 2 * depth}.put(warm_up);
    both.order(make_room, depth);
    bench::putting puts{with.rt, with.calling, depth};
    both.order(answer, depth);
    puts.put(depth);
    const bench::raw_regions from = bench::register_for_raw(both.here().domain(), puts.from());
    const std::string which = "1 MiB, depth " + std::to_string(depth);
    const std::size_t first = recorder.figures().size();
    recorder.compare(
        which, [&](std::uint64_t n) { write_each(both, from, n); },
        [&](std::uint64_t n) {
          both.order(answer, n);
          puts.put(n);
        });
    bench::count_bandwidth(recorder, which, first);
  }
}
