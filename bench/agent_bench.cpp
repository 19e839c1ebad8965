// Measures remote memory that is asked for and returned, beside messages by raw verbs.

#include "agent/lending.hpp"
#include "support/bench.hpp"
#include "support/raw_messages.hpp"
#include "support/raw_threads.hpp"

#include <support/device.hpp>
#include <support/until.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/runtime/runtime.hpp>

#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using cordma::connection;
using cordma::connection_options;
using cordma::isolation;
using cordma::task;

constexpr std::size_t lease_bytes = 4096;
/// The leases after which every window that a lender has in rotation is made.
constexpr std::uint64_t leases_until_warm = 64;
/// The length of an agents' frame.
constexpr std::size_t message_bytes = 64;

connection_options lends(isolation level) {
  connection_options o;
  o.agent.lending.bytes_max = std::size_t{64} << 20;
  o.agent.lending.isolation_min = o.agent.lending.isolation_max = level;
  return o;
}

cordma::runtime_options busy() {
  return {.device = cordma::test::device_name(), .cq = {.mode = cordma::completion_mode::busy}};
}

/// A client that borrows from a server, both in this thread, which polls as the raw loop does.
struct lending_pair {
  explicit lending_pair(isolation level);
  task<> open() {
    auto [c, s] =
        co_await cordma::when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept());
    client = std::move(c);
    server = std::move(s);
  }
  auto all_returned() {
    return cordma::test::until(rt.executor(), [this] { return server.lending().open == 0; });
  }

  cordma::runtime rt{busy()};
  cordma::listener acceptor;
  connection client, server;
};

task<> borrow_each(connection& c, std::uint64_t n) {
  for (; n > 0; --n) static_cast<void>(co_await c.request_remote_mr(lease_bytes));
}

task<> borrow_at_once(connection& c, std::uint64_t n) {
  std::vector<cordma::remote_mr> open;
  for (; n > 0; --n) open.push_back(co_await c.request_remote_mr(lease_bytes));
}

task<> one_by_one(lending_pair& p, std::uint64_t n) {
  co_await borrow_each(p.client, n);
  co_await p.all_returned();
}

lending_pair::lending_pair(isolation level) : acceptor{rt.listen({}, {}, lends(level))} {
  rt.run(open());
  rt.run(one_by_one(*this, leases_until_warm));
}

task<> each_until_it_is_back(lending_pair& p, std::uint64_t n) {
  for (; n > 0; --n) {
    co_await borrow_each(p.client, 1);
    co_await p.all_returned();
  }
}

task<> many_at_once(lending_pair& p, std::uint64_t n, unsigned in_flight) {
  cordma::scope borrowers{p.rt.executor()};
  for (unsigned i = 0; i < in_flight; ++i) {
    borrowers.spawn(borrow_each(p.client, n / in_flight + (i < n % in_flight ? 1 : 0)));
  }
  co_await borrowers.join();
  co_await p.all_returned();
}

/// A client that borrows from a server on another thread, each with a runtime of its own.
class lending_threads {
 public:
  lending_threads(bench::second_thread& other, isolation level) : other_{other} {
    there([&] { server_.emplace(level); });
    const cordma::endpoint address = server_->acceptor.local_endpoint();
    const std::function<void()> accept = [&] {
      server_->peer = server_->rt.run(server_->acceptor.accept());
    };
    other_.start(&accept);
    client_ = rt_.run(rt_.connect(address));
    other_.wait();
    leases(leases_until_warm);
    // The threads decide how many leases are open at once from now on: fewer than were open here.
    lend(open_at_once, borrow_at_once(client_, open_at_once));
  }
  ~lending_threads() {
    client_ = {};
    there([&] { server_.reset(); });
  }
  void leases(std::uint64_t n) { lend(n, borrow_each(client_, n)); }

 private:
  static constexpr std::uint64_t open_at_once = 8;

  void lend(std::uint64_t n, task<> borrows) {
    const std::uint64_t all = server_->peer.lending().returned + n;
    const auto is_done = [&] { return server_->peer.lending().returned == all; };
    const std::function<void()> serve = [&] {
      server_->rt.run(cordma::test::until(server_->rt.executor(), is_done));
    };
    other_.start(&serve);
    rt_.run(std::move(borrows));
    other_.wait();
  }
  struct server_side {
    explicit server_side(isolation level) : acceptor{rt.listen({}, {}, lends(level))} {}
    cordma::runtime rt{busy()};
    cordma::listener acceptor;
    connection peer;
  };
  void there(const std::function<void()>& work) {
    other_.start(&work);
    other_.wait();
  }
  bench::second_thread& other_;
  cordma::runtime rt_{busy()};
  std::optional<server_side> server_;
  connection client_;
};

std::vector<isolation> levels() {
  cordma::runtime rt{busy()};
  const cordma::verbs::port_info port = rt.context().active_port();
  const auto gid = cordma::verbs::choose_gid(rt.context().gid_table(port.number));
  cordma::lending windows{rt.context(), rt.protection_domain()};
  std::vector<isolation> all{isolation::shared_key};
  if (windows.strongest(rt.executor(), port, gid) >= isolation::exact_registered)
    all.push_back(isolation::exact_registered);
  if (windows.strongest(rt.executor(), port, gid) == isolation::exact)
    all.push_back(isolation::exact);
  return all;
}

/// Without windows an ibv_mr is made for each lease.
double allocations_of_device(isolation level) { return level == isolation::shared_key ? 1 : 0; }

std::string name_of(isolation level, const char* what) {
  return std::string{cordma::to_string(level)} + ", " + what;
}

}  // namespace

BENCH_ON_DEVICE("agent/lease/4KiB",
                "What does a lease cost, beside two round trips of 64-byte messages?") {
  bench::raw_messages raw{message_bytes};
  const bench::work two_round_trips = [&](std::uint64_t n) { raw.round_trips(2 * n); };
  for (const isolation level : levels()) {
    lending_pair p{level};
    recorder.allow_allocations(allocations_of_device(level));
    recorder.compare(name_of(level, "request and drop"), two_round_trips,
                     [&](std::uint64_t n) { p.rt.run(one_by_one(p, n)); });
    recorder.compare(name_of(level, "and wait for its end"), two_round_trips,
                     [&](std::uint64_t n) { p.rt.run(each_until_it_is_back(p, n)); });
  }
}

BENCH_ON_DEVICE("agent/threads/4KiB", "The same between two threads, as between two hosts?") {
  if (std::thread::hardware_concurrency() < 2) return;
  const bench::pinned here{0};
  bench::second_thread other;
  bench::raw_threads raw{other, message_bytes};
  for (const isolation level : levels()) {
    lending_threads p{other, level};
    recorder.allow_allocations(allocations_of_device(level));
    recorder.compare(
        name_of(level, "request and drop"), [&](std::uint64_t n) { raw.round_trips(2 * n); },
        [&](std::uint64_t n) { p.leases(n); });
  }
}

BENCH_ON_DEVICE("agent/leases/4KiB", "How many leases a second, several at once?") {
  for (const isolation level : levels()) {
    lending_pair p{level};
    recorder.allow_allocations(allocations_of_device(level));
    for (const unsigned in_flight : {1u, 8u, 15u}) {
      const std::string which = name_of(level, (std::to_string(in_flight) + " in flight").c_str());
      const std::size_t first = recorder.figures().size();
      recorder.measure(which, [&](std::uint64_t n) { p.rt.run(many_at_once(p, n, in_flight)); });
      const double ns = recorder.figures()[first].value;
      recorder.count(which, "leases", "1/s", 1e9 / ns);
    }
  }
}
