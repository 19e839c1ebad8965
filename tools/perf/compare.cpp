#include "compare.hpp"

#include "progress.hpp"
#include "raw_pair.hpp"
#include "server_side.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>

#include <algorithm>
#include <stdexcept>

namespace perf {
namespace {

/// A round is so short that what disturbs the machine disturbs both sides alike.
constexpr std::chrono::milliseconds round_time{10};
/// Odd, so that the median is one of them.
constexpr std::uint64_t rounds_min = 41, rounds_max = 1001;

/// How many operations each round has.
struct plan {
  std::uint64_t rounds = 0;
  std::uint64_t operations = 0;
  std::uint64_t in_first = 0;  ///< operations that do not divide, more in the first round
};

/// The rounds of one side.
struct side {
  meter m;
  std::vector<double> ns;
  histogram latencies;
  double seconds = 0;

  void note_round() {
    const std::chrono::duration<double, std::nano> took = m.now() - m.began();
    const std::uint64_t n = m.latencies().count();
    ns.push_back(took.count() / double(std::max<std::uint64_t>(n, 1)));
    latencies.add(m.latencies());
    seconds += took.count() / 1e9;
  }
};

/// A job whose both ends are here.
struct both_ends {
  both_ends(cordma::runtime& on, const job& of)
      : rt{on}, what{of}, acceptor{on.listen()}, raw{on, of} {}
  cordma::runtime& rt;
  const job what;
  cordma::listener acceptor;
  raw_pair raw;
  cordma::event is_ready;
  remote_end there{};
};

cordma::task<> accept_one(both_ends& b) {
  cordma::connection conn = co_await b.acceptor.accept();
  const teller tell = [&b](const remote_end& where) {
    b.there = where;
    b.is_ready.set();
  };
  co_await serve_connection(b.rt, b.what, tell, std::move(conn));
}

/// A fixed number, or as many as fit into the time: both sides half of it.
plan make_plan(const job& what, double ns_per_operation) {
  using nanoseconds = std::chrono::duration<double, std::nano>;
  const double each = std::max(ns_per_operation, 1.0);
  const bool is_fixed = what.operations != 0;
  const double all =
      is_fixed ? double(what.operations) : nanoseconds(what.duration).count() / 2 / each;
  plan p;
  p.rounds = std::clamp(std::uint64_t(all * each / nanoseconds(round_time).count()) | 1, rounds_min,
                        rounds_max);
  if (is_fixed) {
    p.rounds = std::min(p.rounds, what.operations);
    p.in_first = what.operations % p.rounds;
  }
  p.operations = std::max<std::uint64_t>(std::uint64_t(all / double(p.rounds)), 1);
  return p;
}

comparison compared(const side& ours, const side& raw) {
  comparison c{.ours_ns = median(ours.ns), .raw_ns = median(raw.ns), .rounds = ours.ns.size()};
  std::vector<double> ratios;
  ratios.reserve(ours.ns.size());
  for (std::size_t i = 0; i < ours.ns.size(); ++i) ratios.push_back(ours.ns[i] / raw.ns[i]);
  c.ratio_low = quantile(ratios, 0.25);
  c.ratio_high = quantile(ratios, 0.75);
  c.raw_latencies.add(raw.latencies);
  return c;
}

void run_raw(both_ends& b, side& raw, std::uint64_t operations) {
  raw.m.begin(operations);
  b.raw.run(raw.m);
  raw.note_round();
}

cordma::task<result> run_rounds(both_ends& b, link& l) {
  side ours, raw;
  const auto warm_up =
      std::min(warm_up_operations, b.what.operations != 0 ? b.what.operations : warm_up_operations);
  raw.m.begin(warm_up, warm_up_time);
  b.raw.run(raw.m);
  ours.m.begin(warm_up, warm_up_time);
  co_await l.run(ours.m);
  const std::chrono::duration<double, std::nano> took = ours.m.now() - ours.m.began();
  const plan p =
      make_plan(b.what, took.count() / double(std::max<std::uint64_t>(ours.m.done(), 1)));

  driver_list drivers;
  drivers.add(l.driver());
  result r{.what = b.what};
  r.ours.warm_up_operations = ours.m.done();
  progress_line line;
  for (std::uint64_t i = 0; i < p.rounds; ++i) {
    line.show(to_string(b.what) + ": round " + std::to_string(i + 1) + " of " +
              std::to_string(p.rounds));
    const std::uint64_t n = p.operations + (i == 0 ? p.in_first : 0);
    const bool is_raw_first = i % 2 == 0;
    if (is_raw_first) run_raw(b, raw, n);
    const counters before = read_counters(b.rt, drivers);
    ours.m.begin(n);
    co_await l.run(ours.m);
    r.ours.cost += read_counters(b.rt, drivers) - before;
    ours.note_round();
    if (!is_raw_first) run_raw(b, raw, n);
  }
  r.ours.latencies.add(ours.latencies);
  r.ours.seconds = ours.seconds;
  r.baseline = compared(ours, raw);
  co_return r;
}

cordma::task<> use_both(both_ends& b, std::optional<result>& out) {
  const cordma::endpoint acceptor = b.acceptor.local_endpoint();
  const std::unique_ptr<link> l = co_await link::connect(b.rt, b.what, acceptor);
  co_await b.is_ready.wait();
  l->learn(b.there);
  result r = co_await run_rounds(b, *l);
  out.emplace(std::move(r));
  co_await l->close();
}

}  // namespace

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[std::size_t(part * double(values.size() - 1))];
}
double median(std::vector<double> values) { return quantile(std::move(values), 0.5); }

void check_comparable(const job& what) {
  const auto refuse = [](const std::string& value) {
    throw std::invalid_argument{value +
                                ": the raw loop of --baseline polls one connection on one "
                                "thread; leave it out"};
  };
  // First what brings connections of its own.
  if (what.threads != 1) refuse("--threads " + std::to_string(what.threads));
  if (what.connections != 1) refuse("--connections " + std::to_string(what.connections));
  if (what.mode != cordma::completion_mode::busy) {
    refuse(std::string{"--mode "} + to_string(what.mode));
  }
  const auto refuse_option = [](const std::string& option) {
    throw std::invalid_argument{option + ": the raw loop of --baseline has none; leave it out"};
  };
  if (const char* const option = option_of_connections(what.path)) refuse_option(option);
  if (what.rate != 0) refuse_option("--rate " + rate_text(what.rate));
  if (what.is_bidirectional) refuse_option("--bidirectional");
  if (what.is_endless) refuse_option("--forever");
  if (what.warm_up) refuse_option("--warm-up");
}

void compare_with_raw(const device_choice& device, const std::vector<job>& jobs,
                      const std::function<void(const result&)>& each) {
  for (const job& what : jobs) {
    check_comparable(what);
    cordma::runtime_options on = device.runtime_options(what.mode);
    on.connections = connection_options(what);
    cordma::runtime rt{std::move(on)};
    std::optional<result> r;
    {
      both_ends b{rt, what};
      rt.run(cordma::when_all(accept_one(b), use_both(b, r)));
    }
    each(r.value());
  }
}

}  // namespace perf
