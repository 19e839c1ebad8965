// Compares the raw loop that stands beside ours with the loops that others write.

#include "support/bench.hpp"
#include "support/perftest.hpp"
#include "support/raw_loopback.hpp"

#include <chrono>
#include <stdexcept>
#include <string>

namespace {

using bench::raw_loopback;

constexpr std::size_t size_bytes = 64;
constexpr std::uint64_t messages = 1'000'000;
constexpr double ratio_min = 0.9;

double raw_rate(raw_loopback& l) {
  const auto start = std::chrono::steady_clock::now();
  l.raw.run([&l] { return l.request(IBV_WR_RDMA_WRITE, size_bytes); }, messages,
            raw_loopback::depth);
  const std::chrono::duration<double, std::micro> took = std::chrono::steady_clock::now() - start;
  return double(messages) / took.count();
}

}  // namespace

BENCH_ON_DEVICE("raw_loop/write/64B", "Is the raw loop at least as fast as ib_write_bw's?") {
  raw_loopback l;
  if (!bench::has_perftest(l.ctx.name())) return;  // Elsewhere the two measure different things.
  const double raw = raw_rate(l);
  // With an entry for each message, as the loop has.
  const bench::perftest_program bandwidth{"ib_write_bw", "-Q 1 -n 200000 -s " +
                                                             std::to_string(size_bytes) + " -t " +
                                                             std::to_string(raw_loopback::depth)};
  const double perftest = bench::run_perftest(l.ctx, l.port, bandwidth);
  recorder.count("beside ib_write_bw", "rate", "Mmsg/s", raw, perftest);
  if (raw < ratio_min * perftest)
    throw std::runtime_error{"the raw loop is slower: nothing to stand beside"};
}
