// Compares the adaptive mode with the two modes between which it lies: busy, which is quickest, and
// event, which takes the least of the processor.

#include "support/bench.hpp"
#include "support/ping_pong.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>

namespace {

using namespace std::chrono_literals;
using bench::ball;
using bench::latencies;
using bench::noticing;
using bench::two_processes;
using cordma::task;

constexpr std::array modes{noticing::busy, noticing::event, noticing::adaptive};
/// From hardly any load to as much as one at a time can be.
constexpr std::array<std::chrono::microseconds, 9> intervals{2000us, 1000us, 500us, 200us, 100us,
                                                             50us,   20us,   10us,  0us};
constexpr std::uint64_t sweep_rounds = 5;
constexpr std::chrono::microseconds round_length{40ms};

/// The user and system time of this process and its device, in microseconds.
double processor_us() {
  rusage all{};
  ::getrusage(RUSAGE_SELF, &all);
  const auto us = [](const timeval& t) { return double(t.tv_sec) * 1e6 + double(t.tv_usec); };
  return us(all.ru_utime) + us(all.ru_stime);
}

/// The times and the processor's use of one mode at one load.
struct paced {
  latencies took;
  double processor = 0;
};

task<> play(bench::link_end& here, noticing how, std::chrono::microseconds interval,
            latencies& to) {
  cordma::executor& executor = here.ours(how).executor;
  const cordma::time_point start = executor.now();
  for (std::uint64_t i = 0; i < to.round(); ++i) {
    if (interval > 0us) co_await executor.sleep_until(start + std::int64_t(i) * interval);
    co_await bench::ping_pong::once(here, ball::send, how, to);
  }
}

void play_round(two_processes& both, noticing how, std::chrono::microseconds interval, paced& to) {
  bench::ping_pong::order_ours(both, ball::send, how, to.took.round());
  const double before = processor_us();
  both.here().ours(how).executor.run(play(both.here(), how, interval, to.took));
  to.processor += processor_us() - before;
}

void sweep(bench::recorder& recorder, two_processes& both, std::chrono::microseconds interval) {
  const std::uint64_t round =
      interval > 0us ? std::uint64_t(round_length / std::max(interval, 20us)) : 2000;
  const auto fresh = [round] { return paced{latencies{round, sweep_rounds, 0}}; };
  std::array<paced, modes.size()> all{fresh(), fresh(), fresh()};
  for (std::uint64_t i = 0; i < sweep_rounds; ++i) {
    for (const noticing how : modes) play_round(both, how, interval, all[std::size_t(how)]);
  }
  const std::string which =
      interval > 0us ? "every " + std::to_string(interval.count()) + " us" : "as fast as can be";
  std::array<double, modes.size()> us{}, processor{};
  for (const noticing how : modes) {
    const auto i = std::size_t(how);
    us[i] = all[i].took.quantile(0.5) / 1000;
    processor[i] = all[i].processor / double(round * sweep_rounds);
  }
  constexpr auto busy = std::size_t(noticing::busy), event = std::size_t(noticing::event),
                 adaptive = std::size_t(noticing::adaptive);
  recorder.count(which, "busy p50", "us", us[busy]);
  recorder.count(which, "event p50", "us", us[event]);
  recorder.count(which, "adaptive p50", "us", us[adaptive], std::min(us[busy], us[event]));
  recorder.count(which, "busy CPU", "us/op", processor[busy]);
  recorder.count(which, "event CPU", "us/op", processor[event]);
  recorder.count(which, "adaptive CPU", "us/op", processor[adaptive],
                 std::min(processor[busy], processor[event]));
  // No mode can be as quick as busy and as cheap as event where operations are far apart. The sum
  // of the time that is waited for and of the processor's decides.
  const auto sum = [&](std::size_t i) { return us[i] + processor[i]; };
  recorder.count(which, "adaptive both", "us/op", sum(adaptive), std::min(sum(busy), sum(event)));
}

}  // namespace

BENCH_ON_DEVICE("adaptive/load", "Is looking for a while as quick as looking always, under load?") {
  if (std::thread::hardware_concurrency() < 2) return;
  two_processes both{&bench::ping_pong::serve};
  bench::compare_latencies(
      recorder, "SEND there and back, beside busy", {500, 100, 50},
      [&](latencies& to) { bench::ping_pong::ours(both, ball::send, noticing::busy, to); },
      [&](latencies& to) { bench::ping_pong::ours(both, ball::send, noticing::adaptive, to); });

  for (const noticing how : {noticing::event, noticing::adaptive}) {
    cordma::executor& executor = both.here().ours(how).executor;
    const double before = processor_us();
    executor.run(executor.sleep_for(1s));
    recorder.count(how == noticing::event ? "idle, event" : "idle, adaptive", "CPU", "%",
                   (processor_us() - before) / 1e4);
  }

  for (const std::chrono::microseconds interval : intervals) sweep(recorder, both, interval);
}
