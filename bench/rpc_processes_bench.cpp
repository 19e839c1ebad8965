// What a call costs between two processes, beside messages by raw verbs. Linked first: it forks.

#include "support/ping_pong.hpp"
#include "support/rpc_serving.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <algorithm>
#include <chrono>
#include <optional>
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

void serve(bench::link_end& there, unsigned what, std::uint64_t n) {
  static std::optional<bench::serving> server;
  switch (what) {
    case be_server: server.emplace().begin({"127.0.0.1", std::uint16_t(n)}); break;
    case answer: server->reply(n); break;
    case make_room: server->to = bench::bulk_memory(server->rt, unsigned(n)); break;
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
    cordma::listener door{rt.listen()};
    both.order(be_server, door.local_endpoint().port);
    calling =
        cordma::rpc::client{rt.run(cordma::with_timeout(door.accept(), std::chrono::seconds{10}))};
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

/// So many WRITEs by raw verbs, and a message, so that the other knows that it was the last.
void write_each(bench::two_processes& both, std::uint64_t n, unsigned depth) {
  both.order(await_last, 1);
  bench::link_end& here = both.here();
  bench::raw_side& side = here.raw(bench::noticing::busy);
  const cordma::local_mr_slice from = here.window();
  ibv_sge piece{.addr = 0, .length = std::uint32_t(bulk_bytes), .lkey = from.lkey()};
  for (std::uint64_t posted = 0, done = 0; done < n; ++done) {
    for (; posted < n && posted < done + depth; ++posted) {
      const std::uint64_t offset = posted % depth * bulk_bytes;
      ibv_send_wr& write = here.raw_request(IBV_WR_RDMA_WRITE);
      piece.addr = reinterpret_cast<std::uint64_t>(from.bytes().data()) + offset;
      write.sg_list = &piece;
      write.send_flags = IBV_SEND_SIGNALED;
      write.wr.rdma.remote_addr = here.window_there() + offset;
      side.post(write);
    }
    side.await_sent();
  }
  side.post_seldom_signaled(here.raw_request(IBV_WR_SEND));
}

}  // namespace

BENCH_ON_DEVICE("rpc/processes", "What does a call cost, its server in another process?") {
  if (std::thread::hardware_concurrency() < 2) return;
  constexpr unsigned depth_max = 16, warm_up = 256;
  bench::two_processes both{&serve, bench::echo_bytes, depth_max * bulk_bytes};
  std::ranges::fill(both.here().window().bytes(), std::byte{0x5a});
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
  for (const unsigned depth : {2u, depth_max}) {
    // Each side keeps what it once needed.
    both.order(make_room, 2 * depth);
    both.order(answer, warm_up);
    bench::putting{with.rt, with.calling, 2 * depth}.put(warm_up);
    both.order(make_room, depth);
    bench::putting puts{with.rt, with.calling, depth};
    const std::string which = "1 MiB, depth " + std::to_string(depth);
    const std::size_t first = recorder.figures().size();
    recorder.compare(
        which, [&](std::uint64_t n) { write_each(both, n, depth); },
        [&](std::uint64_t n) {
          both.order(answer, n);
          puts.put(n);
        });
    bench::count_bandwidth(recorder, which, first);
  }
}
