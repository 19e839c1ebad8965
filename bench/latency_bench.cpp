// Measures what co_await adds to one operation between two processes, beside raw verbs and beside
// perftest.

#include "support/bench.hpp"
#include "support/perftest.hpp"
#include "support/ping_pong.hpp"

#include <thread>

namespace {

using bench::ball;
using bench::latencies;
using bench::link_end;
using bench::noticing;
using bench::two_processes;
using cordma::task;

/// An operation takes microseconds, or, where both ends sleep, a hundred.
constexpr bench::laps laps_of(noticing how) {
  return how == noticing::busy ? bench::laps{500, 600, 20} : bench::laps{100, 60, 10};
}

constexpr std::string_view name_of(noticing how) {
  return how == noticing::busy ? "busy" : how == noticing::event ? "event" : "adaptive";
}

std::string name_of(std::string_view what, noticing how) {
  return std::string{what} + ", " + std::string{name_of(how)};
}

/// Posts requests that only this end knows of, one at a time; raw_one_by_one() is the raw side.
template <class Make>
task<> one_by_one(link_end& here, noticing how, latencies& to, Make make) {
  cordma::queue_pair& qp = here.ours(how).qp;
  to.start();
  for (std::uint64_t n = to.round(); n > 0; --n) {
    co_await qp.await(make(here));
    to.lap();
  }
}

void raw_one_by_one(link_end& here, noticing how, latencies& to, ibv_wr_opcode opcode) {
  bench::raw_side& side = here.raw(how);
  to.start();
  for (std::uint64_t n = to.round(); n > 0; --n) {
    side.post(here.raw_request(opcode));
    side.await_sent();
    to.lap();
  }
}

auto make_read(link_end& here) { return cordma::read(here.outbox(), here.there()); }
auto make_write(link_end& here) { return cordma::write(here.outbox(), here.there()); }
auto make_add(link_end& here) { return cordma::fetch_add(here.there(), 0); }
auto make_swap(link_end& here) { return cordma::compare_swap(here.there(), 0, 0); }

double there_and_back(bench::recorder& recorder, two_processes& both, std::string_view name,
                      ball what, noticing how) {
  return bench::compare_latencies(
      recorder, name_of(name, how), laps_of(how),
      [&](latencies& to) { bench::ping_pong::raw(both, what, how, to); },
      [&](latencies& to) { bench::ping_pong::ours(both, what, how, to); });
}

template <class Make>
double from_here(bench::recorder& recorder, link_end& here, std::string_view name, noticing how,
                 ibv_wr_opcode opcode, Make make) {
  return bench::compare_latencies(
      recorder, name_of(name, how), laps_of(how),
      [&](latencies& to) { raw_one_by_one(here, how, to, opcode); },
      [&](latencies& to) { here.ours(how).executor.run(one_by_one(here, how, to, make)); });
}

/// Compares each operation with perftest's at once, so that both meet the same machine. perftest
/// counts half of what goes there and back.
void compare_all(bench::recorder& recorder, two_processes& both, noticing how) {
  link_end& here = both.here();
  const bool is_busy = how == noticing::busy;
  const std::string events = is_busy ? "" : " -e";
  const auto beside = [&](std::string_view what, double ns, const char* program,
                          const std::string& options) {
    bench::beside_perftest(recorder, here.ctx, here.port, name_of(what, how), ns,
                           {program, options + events});
  };
  const std::string small = "-s " + std::to_string(here.message_bytes());
  const double send = there_and_back(recorder, both, "SEND there and back", ball::send, how);
  beside("half of SEND", send / 2, "ib_send_lat", small);
  there_and_back(recorder, both, "WRITE_WITH_IMM there and back", ball::write_with_imm, how);
  if (is_busy) {
    const double write = there_and_back(recorder, both, "WRITE there and back", ball::write, how);
    beside("half of WRITE", write / 2, "ib_write_lat", small);
  }
  from_here(recorder, here, "WRITE", how, IBV_WR_RDMA_WRITE, &make_write);
  const double read = from_here(recorder, here, "READ", how, IBV_WR_RDMA_READ, &make_read);
  beside("READ", read, "ib_read_lat", small);
  const double add =
      from_here(recorder, here, "fetch-add", how, IBV_WR_ATOMIC_FETCH_AND_ADD, &make_add);
  beside("fetch-add", add, "ib_atomic_lat", "-A FETCH_AND_ADD");
  from_here(recorder, here, "compare-swap", how, IBV_WR_ATOMIC_CMP_AND_SWP, &make_swap);
}

}  // namespace

BENCH_ON_DEVICE("latency/processes", "Two processes: what does co_await add to one operation?") {
  if (std::thread::hardware_concurrency() < 2) return;
  two_processes both{&bench::ping_pong::serve};
  for (const noticing how : {noticing::busy, noticing::event}) compare_all(recorder, both, how);
}
