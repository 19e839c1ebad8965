#include "raw_loopback.hpp"

#include <array>
#include <stdexcept>

namespace bench {
namespace {

using namespace cordma;

constexpr std::size_t buffer_bytes = 64 * 1024;
constexpr verbs::queue_pair_capabilities both_capabilities{.send_wr_max = raw_loopback::depth,
                                                           .recv_wr_max = raw_loopback::depth};
// Two queue pairs, two directions, and what a device rounds up.
constexpr unsigned cq_depth = 8 * raw_loopback::depth;

}  // namespace

void raw_loopback::check(int rc, const char* call) {
  if (rc != 0) throw error{errno_failure(rc, call)};
}

raw_loopback::raw_loopback()
    : cordma::test::loopback{{.cq = {.depth = cq_depth, .mode = completion_mode::busy},
                              .capabilities = both_capabilities}},
      local{memory(buffer_bytes)},
      remote{memory(buffer_bytes)},
      raw_cq{ctx, cq_depth},
      raw_a{pd, raw_cq, raw_cq, both_capabilities},
      raw_b{pd, raw_cq, raw_cq, both_capabilities} {
  cordma::test::connect(ctx, port, raw_a, raw_b.num());
  cordma::test::connect(ctx, port, raw_b, raw_a.num());
}

raw_loopback::reaped raw_loopback::reap(verbs::completion_queue& cq) {
  std::array<ibv_wc, 32> entries;
  const int n = cq.poll(entries);
  reaped count;
  for (int i = 0; i < n; ++i) {
    if (entries[std::size_t(i)].status != IBV_WC_SUCCESS) {
      throw std::runtime_error{ibv_wc_status_str(entries[std::size_t(i)].status)};
    }
    ++((entries[std::size_t(i)].opcode & IBV_WC_RECV) != 0 ? count.receives : count.sends);
  }
  return count;
}

void raw_loopback::run_raw(ibv_send_wr& wr, std::uint64_t n, std::uint32_t in_flight_max) {
  run_raw_making([&wr] { return &wr; }, n, in_flight_max);
}

void raw_loopback::run_raw_receiving(ibv_send_wr& wr, ibv_recv_wr& receive, std::uint64_t n,
                                     std::uint32_t in_flight_max) {
  run_raw_receiving_making([&] { return &receive; }, [&] { return &wr; }, n, in_flight_max);
}

void raw_loopback::run_raw_ping_pong(ibv_send_wr& wr, ibv_recv_wr& receive, std::uint64_t n) {
  std::uint64_t sent = 0;
  for (std::uint64_t i = 0; i < 2 * n; ++i) {
    const bool there = i % 2 == 0;
    ibv_recv_wr* bad_receive = nullptr;
    check((there ? raw_b : raw_a).post_recv(&receive, &bad_receive), "ibv_post_recv");
    ibv_send_wr* bad = nullptr;
    check((there ? raw_a : raw_b).post_send(&wr, &bad), "ibv_post_send");
    for (reaped count; count.receives == 0; sent += count.sends) count = reap(raw_cq);
  }
  while (sent < 2 * n) sent += reap(raw_cq).sends;
}

}  // namespace bench
