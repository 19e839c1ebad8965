// Measures sleeping for completions. With many requests in flight, the benchmark counts what holds
// on any machine: completions that one wake-up brings, system calls and arms an operation takes.
// With one at a time, ours runs beside the loops that programs have, and beside perftest's.

#include "support/bench.hpp"
#include "support/perftest.hpp"
#include "support/ping_pong.hpp"
#include "support/rounds.hpp"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

namespace {

using bench::link_end;
using bench::noticing;
using bench::two_processes;
using cordma::task;

constexpr std::uint64_t depth = bench::link_depth;
constexpr std::uint64_t per_round = 4000;
constexpr int rounds = 21;

/// The counts of one end so far.
struct tally {
  double operations = 0, completions = 0, blocked = 0, system_calls = 0, arms = 0;
  tally operator-(const tally& before) const {
    return {operations - before.operations, completions - before.completions,
            blocked - before.blocked, system_calls - before.system_calls, arms - before.arms};
  }
};

tally of(const bench::raw_side& raw) {
  const auto blocked = double(raw.blocked);
  return {0, double(raw.completions), blocked, blocked, double(raw.arms)};
}

tally of(bench::our_side& ours) {
  const cordma::completion_counters& c = ours.driver.counters();
  // Each wake-up reads one event.
  return {0, double(c.completions), double(c.wake_ups),
          double(ours.executor.reactor().enters() + c.wake_ups), double(c.arms)};
}

/// 0: there were none, as of wake-ups where completions are always there already.
double each(double what, double of) { return of > 0 ? what / of : 0; }

void record(bench::recorder& recorder, const std::string& which, const tally& ours,
            const tally& raw) {
  recorder.count(which, "completions", "1/wake", each(ours.completions, ours.blocked),
                 each(raw.completions, raw.blocked));
  recorder.count(which, "system calls", "1/op", each(ours.system_calls, ours.operations),
                 each(raw.system_calls, raw.operations));
  recorder.count(which, "arms", "1/op", each(ours.arms, ours.operations),
                 each(raw.arms, raw.operations));
}

/// Requests that the other end's device answers alone.
void raw_many(link_end& here, ibv_wr_opcode opcode, std::uint64_t n) {
  bench::raw_side& side = here.raw(noticing::event);
  for (std::uint64_t posted = 0, ended = 0; ended < n;) {
    for (; posted < n && posted - ended < depth; ++posted) side.post(here.raw_request(opcode));
    side.await_sent();
    ended += 1 + std::exchange(side.sent, 0);
  }
}

template <class Make>
task<> many(link_end& here, std::uint64_t n, Make make) {
  cordma::queue_pair& qp = here.ours(noticing::event).qp;
  using handle = decltype(qp.post(make(here)));
  std::array<std::optional<handle>, depth> handles;
  for (std::uint64_t i = 0; i < n; ++i) {
    auto& one = handles[i % depth];
    if (one) co_await *one;
    one.emplace(qp.post(make(here)));
  }
  for (auto& one : handles) {
    if (one) co_await *one;
  }
}

auto make_read(link_end& here) { return cordma::read(here.outbox(), here.there()); }
auto make_write(link_end& here) { return cordma::write(here.outbox(), here.there()); }

template <class Raw, class Ours>
void compare(bench::recorder& recorder, link_end& here, const std::string& which, Raw raw,
             Ours ours) {
  const tally raw_before = of(here.raw(noticing::event));
  const tally before = of(here.ours(noticing::event));
  std::uint64_t raw_operations = 0, operations = 0;
  bench::compare_rounds(
      recorder, which, per_round, rounds, [&](std::uint64_t n) { raw(n), raw_operations += n; },
      [&](std::uint64_t n) { ours(n), operations += n; });
  tally theirs = of(here.raw(noticing::event)) - raw_before;
  tally own = of(here.ours(noticing::event)) - before;
  theirs.operations = double(raw_operations);
  own.operations = double(operations);
  record(recorder, which, own, theirs);
}

template <class Make>
void from_here(bench::recorder& recorder, link_end& here, const std::string& which,
               ibv_wr_opcode opcode, Make make) {
  compare(
      recorder, here, which, [&](std::uint64_t n) { raw_many(here, opcode, n); },
      [&](std::uint64_t n) { here.ours(noticing::event).executor.run(many(here, n, make)); });
}

/// A round has as many as perftest's. For hundreds of round trips, a host of virtual machines
/// learns that a processor sleeps briefly.
double there_and_back(bench::recorder& recorder, two_processes& both, const std::string& which,
                      noticing raw) {
  return bench::compare_latencies(
      recorder, which, bench::laps{1000, 20, 100},
      [&](bench::latencies& to) { bench::ping_pong::raw(both, bench::ball::send, raw, to); },
      [&](bench::latencies& to) {
        bench::ping_pong::ours(both, bench::ball::send, noticing::event, to);
      });
}

}  // namespace

BENCH_ON_DEVICE("event/there and back", "64 bytes, where both ends sleep: how long do they take?") {
  if (std::thread::hardware_concurrency() < 2) return;
  constexpr std::size_t message_bytes = 64;
  two_processes both{&bench::ping_pong::serve, message_bytes};
  there_and_back(recorder, both, "beside get event, acknowledge, arm, poll",
                 noticing::by_the_manual);
  const double ns =
      there_and_back(recorder, both, "beside poll, arm, poll, get event", noticing::event);
  bench::beside_perftest(recorder, both.here().ctx, both.here().port, "half of it", ns / 2,
                         {"ib_send_lat", "-e -s " + std::to_string(message_bytes)});
}

BENCH_ON_DEVICE("event/depth 64",
                "How often does an end that sleeps wake, enter the kernel, arm?") {
  if (std::thread::hardware_concurrency() < 2) return;
  two_processes both{&bench::ping_pong::serve};
  link_end& here = both.here();
  from_here(recorder, here, "READ", IBV_WR_RDMA_READ, &make_read);
  from_here(recorder, here, "WRITE", IBV_WR_RDMA_WRITE, &make_write);
  compare(
      recorder, here, "SEND there and back",
      [&](std::uint64_t n) { bench::ping_pong::raw_window(both, noticing::event, n, depth); },
      [&](std::uint64_t n) { bench::ping_pong::our_window(both, noticing::event, n, depth); });
}
