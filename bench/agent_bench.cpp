// What remote memory costs that is asked for and returned, beside messages by raw verbs.

#include "support/bench.hpp"
#include "support/raw_loopback.hpp"
#include "support/second_thread.hpp"

#include <support/device.hpp>
#include <support/until.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/runtime/runtime.hpp>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using bench::raw_loopback;
using cordma::connection;
using cordma::connection_options;
using cordma::isolation;
using cordma::task;

constexpr std::size_t lease_bytes = 4096;
/// After so many every window that a lender has in rotation is made.
constexpr std::uint64_t leases_until_warm = 64;
/// As long as a frame of the agents.
constexpr std::size_t message_bytes = 64;

/// Messages of raw verbs, there and back.
class raw_messages {
 public:
  void round_trips(std::uint64_t n) { loop_.run_raw_ping_pong(wr_, receive_, n); }

  raw_messages() {
    const auto piece = [](const cordma::local_mr& mr) {
      return ibv_sge{.addr = reinterpret_cast<std::uint64_t>(mr.bytes().data()),
                     .length = message_bytes,
                     .lkey = mr.slice().lkey()};
    };
    from_ = piece(loop_.local);
    to_ = piece(loop_.remote);
    wr_.sg_list = &from_;
    receive_.sg_list = &to_;
    wr_.num_sge = receive_.num_sge = 1;
    wr_.opcode = IBV_WR_SEND;
    wr_.send_flags = IBV_SEND_SIGNALED;
    if (message_bytes <= loop_.raw_a.capabilities().inline_max) wr_.send_flags |= IBV_SEND_INLINE;
  }

 private:
  raw_loopback loop_;
  ibv_sge from_{}, to_{};
  ibv_send_wr wr_{};
  ibv_recv_wr receive_{};
};

connection_options lends(isolation level) {
  connection_options o;
  o.agent.lending.bytes_max = std::size_t{64} << 20;
  o.agent.lending.isolation_min = o.agent.lending.isolation_max = level;
  return o;
}

cordma::runtime_options busy() {
  return {.device = cordma::test::device_name(), .mode = cordma::completion_mode::busy};
}

/// A client that borrows from a server, both in this thread, which polls as the raw loop does.
struct lending_pair {
  explicit lending_pair(isolation level);
  task<> open() {
    auto [c, s] = co_await cordma::when_all(rt.connect(door.local_endpoint()), door.accept());
    client = std::move(c);
    server = std::move(s);
  }
  auto all_returned() {
    return cordma::test::until(rt.executor(), [this] { return server.lending().open == 0; });
  }

  cordma::runtime rt{busy()};
  cordma::listener door;
  connection client, server;
};

task<> borrow_each(connection& c, std::uint64_t n) {
  for (; n > 0; --n) static_cast<void>(co_await c.request_remote_mr(lease_bytes));
}

task<> one_by_one(lending_pair& p, std::uint64_t n) {
  co_await borrow_each(p.client, n);
  co_await p.all_returned();
}

lending_pair::lending_pair(isolation level) : door{rt.listen({}, {}, lends(level))} {
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

/// Messages of raw verbs between two threads, each with a completion queue of its own.
class raw_threads {
 public:
  explicit raw_threads(bench::second_thread& other) : other_{other} {
    const cordma::verbs::port_info& port = loop_.port;
    cordma::test::connect(loop_.ctx, port, here_.qp, there_.qp.num());
    cordma::test::connect(loop_.ctx, port, there_.qp, here_.qp.num());
    here_.post_receive();
    there_.post_receive();
  }
  void round_trips(std::uint64_t n) {
    const std::function<void()> echo = [&] {
      for (std::uint64_t i = 0; i < n; ++i) {
        there_.receive();
        there_.send();
      }
      there_.drain();
    };
    other_.start(&echo);
    for (std::uint64_t i = 0; i < n; ++i) {
      here_.send();
      here_.receive();
    }
    here_.drain();
    other_.wait();
  }

 private:
  struct end {
    explicit end(cordma::test::loopback& on)
        : memory{on.memory(message_bytes)},
          cq{on.ctx, 64},
          qp{on.pd, cq, cq, {.send_wr_max = 16, .recv_wr_max = 16}} {
      wr.sg_list = from_or_to.sg_list = &piece;
      wr.num_sge = from_or_to.num_sge = 1;
      wr.opcode = IBV_WR_SEND;
      wr.send_flags = IBV_SEND_SIGNALED | IBV_SEND_INLINE;
      piece = {.addr = reinterpret_cast<std::uint64_t>(memory.bytes().data()),
               .length = message_bytes,
               .lkey = memory.slice().lkey()};
    }
    void post_receive() {
      ibv_recv_wr* bad = nullptr;
      if (qp.post_recv(&from_or_to, &bad) == 0) ++receives;
    }
    void send() {
      ibv_send_wr* bad = nullptr;
      if (qp.post_send(&wr, &bad) == 0) ++sends;
    }
    void poll() {
      std::array<ibv_wc, 8> entries;
      const int n = cq.poll(entries);
      for (int i = 0; i < n; ++i)
        --((entries[std::size_t(i)].opcode & IBV_WC_RECV) != 0 ? receives : sends);
    }
    /// A message, and a receive for the next one.
    void receive() {
      for (const std::uint64_t before = receives; receives == before;) poll();
      post_receive();
    }
    void drain() {
      while (sends > 0) poll();
    }
    cordma::local_mr memory;
    cordma::verbs::completion_queue cq;
    cordma::verbs::queue_pair qp;
    ibv_sge piece{};
    ibv_send_wr wr{};
    ibv_recv_wr from_or_to{};
    std::uint64_t sends = 0, receives = 0;
  };
  bench::second_thread& other_;
  cordma::test::loopback loop_;
  end here_{loop_}, there_{loop_};
};

/// A client that borrows from a server on another thread, each with a runtime of its own.
class lending_threads {
 public:
  lending_threads(bench::second_thread& other, isolation level) : other_{other} {
    there([&] { server_.emplace(level); });
    const cordma::endpoint address = server_->door.local_endpoint();
    const std::function<void()> accept = [&] {
      server_->peer = server_->rt.run(server_->door.accept());
    };
    other_.start(&accept);
    client_ = rt_.run(rt_.connect(address));
    other_.wait();
    leases(leases_until_warm);
  }
  ~lending_threads() {
    client_ = {};
    there([&] { server_.reset(); });
  }
  void leases(std::uint64_t n) {
    const std::uint64_t all = server_->peer.lending().returned + n;
    const auto is_done = [&] { return server_->peer.lending().returned == all; };
    const std::function<void()> serve = [&] {
      server_->rt.run(cordma::test::until(server_->rt.executor(), is_done));
    };
    other_.start(&serve);
    rt_.run(borrow_each(client_, n));
    other_.wait();
  }

 private:
  struct server_side {
    explicit server_side(isolation level) : door{rt.listen({}, {}, lends(level))} {}
    cordma::runtime rt{busy()};
    cordma::listener door;
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
  const auto gid = cordma::verbs::choose_gid(rt.context().gid_table(port.number)).entry;
  cordma::lending office{rt.context(), rt.protection_domain()};
  std::vector<isolation> all{isolation::shared_key};
  if (office.strongest(port, gid) >= isolation::exact_registered)
    all.push_back(isolation::exact_registered);
  if (office.strongest(port, gid) == isolation::exact) all.push_back(isolation::exact);
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
  raw_messages raw;
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
  raw_threads raw{other};
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
