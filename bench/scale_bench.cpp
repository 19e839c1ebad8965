// Measures whether more threads do more, and whether many connections are as quick as one.

#include "support/bench.hpp"
#include "support/raw_loopback.hpp"
#include "support/rounds.hpp"
#include "support/second_thread.hpp"

#include <support/connected_pair.hpp>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <deque>
#include <fstream>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using bench::raw_loopback;
using cordma::task;

constexpr std::size_t size_bytes = 64;
constexpr std::uint64_t depth = raw_loopback::depth;
constexpr std::uint64_t per_round = 20'000;
constexpr int rounds = 21;

auto write_of(const raw_loopback& l) { return l.request(IBV_WR_RDMA_WRITE, size_bytes); }

template <class Post>
task<> many_at_once(std::uint64_t n, Post post) {
  using handle = decltype(post(n));
  std::array<std::optional<handle>, depth> handles;
  for (std::uint64_t i = 0; i < n; ++i) {
    auto& one = handles[i % depth];
    if (one) co_await *one;
    one.emplace(post(i));
  }
  for (auto& one : handles) {
    if (one) co_await *one;
  }
}

/// One thread's queue pairs, by ours and by raw verbs.
class thread_work {
 public:
  void raw(std::uint64_t n) {
    loop_.raw.run([this] { return write_of(loop_); }, n, depth);
  }
  void ours(std::uint64_t n) {
    loop_.executor.run(many_at_once(n, [this](std::uint64_t) {
      return loop_.a->post(
          cordma::write(loop_.local.slice(0, size_bytes), loop_.remote.remote_slice()));
    }));
  }
  /// A loop that needs processors alone: no memory, no device.
  static void arithmetic(std::uint64_t n) {
    constexpr std::uint64_t steps = 100;
    std::uint64_t x = n;
    for (std::uint64_t i = 0; i < n * steps; ++i) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      asm volatile("" : "+r"(x));
    }
  }

 private:
  raw_loopback loop_;
};

/// Two threads that do the same, beside one.
class two_threads {
 public:
  struct result {
    std::vector<double> one, gains;
  };
  two_threads() {
    on_other([this] { there_.emplace(); });
  }
  ~two_threads() {
    on_other([this] { there_.reset(); });
  }
  two_threads(const two_threads&) = delete;

  /// `work` is given a thread's own.
  template <class Work>
  void round(Work work, result& to) {
    constexpr std::uint64_t n = 100'000;
    const double single = bench::ns_of([&](std::uint64_t) { work(here_, n); }, n);
    const std::function<void()> other = [&] { work(*there_, n); };
    const auto both = [&](std::uint64_t) {
      other_.start(&other);
      work(here_, n);
      other_.wait();
    };
    const double together = bench::ns_of(both, n);
    to.one.push_back(1e9 * double(n) / single);
    to.gains.push_back(2 * single / together);
  }

 private:
  void on_other(const std::function<void()>& work) {
    other_.start(&work);
    other_.wait();
  }
  bench::pinned here_only_{0};
  bench::second_thread other_;
  thread_work here_;
  std::optional<thread_work> there_;
};

/// Connections of one executor to itself, and raw queue pairs as many.
class crowd {
 public:
  static constexpr unsigned count = 1000;

  crowd()
      : rt_{options()},
        acceptor_{rt_.listen()},
        local_{rt_.memory().allocate_zeroed(size_bytes)},
        remote_{rt_.memory(cordma::test::all_access).allocate_zeroed(size_bytes)} {
    join();  // The first connection alone pays for what all share.
    const usage before = now();
    for (unsigned n = 1; n < count; ++n) join();
    const usage after = now();
    resident_each_ = double(after.resident - before.resident) / (2.0 * (count - 1));
    registered_each_ = double(after.registered - before.registered) / (2.0 * (count - 1));
  }
  void writes(std::uint64_t n, unsigned connections) {
    rt_.run(many_at_once(n, [this, connections](std::uint64_t i) {
      return clients_[i % connections].post(cordma::write(local_.slice(), remote_.remote_slice()));
    }));
  }
  [[nodiscard]] double resident_each() const { return resident_each_; }
  [[nodiscard]] double registered_each() const { return registered_each_; }
  [[nodiscard]] std::size_t queues() const { return rt_.completion_queue_count(); }

 private:
  struct usage {
    std::size_t resident, registered;
  };
  /// Each end has a socket: more than some systems let a process have, unless it asks.
  static void raise_descriptors_max() {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  static cordma::runtime_options options() {
    raise_descriptors_max();
    cordma::runtime_options o;
    o.cq.mode = cordma::completion_mode::busy;
    const cordma::verbs::context ctx{cordma::test::device_name()};
    o.cq.depth = std::min(1u << 20, ctx.limits().cqe_max);  // One queue for all, if it may be.
    return cordma::test::on_test_device(std::move(o));
  }
  usage now() { return {resident_bytes(), rt_.memory().statistics().in_use_bytes}; }
  /// Returns the resident memory of the process (proc_pid_statm(5)).
  static std::size_t resident_bytes() {
    std::size_t pages_mapped = 0, pages_there = 0;
    std::ifstream{"/proc/self/statm"} >> pages_mapped >> pages_there;
    return pages_there * std::size_t(::sysconf(_SC_PAGESIZE));
  }
  task<> open() {
    auto [c, s] =
        co_await cordma::when_all(rt_.connect(acceptor_.local_endpoint()), acceptor_.accept());
    clients_.push_back(std::move(c));
    servers_.push_back(std::move(s));
  }
  void join() { rt_.run(open()); }

  cordma::runtime rt_;
  cordma::listener acceptor_;
  cordma::local_mr local_, remote_;
  std::deque<cordma::connection> clients_, servers_;
  double resident_each_ = 0, registered_each_ = 0;
};

class raw_crowd {
 public:
  raw_crowd() {
    for (unsigned i = 0; i < crowd::count; ++i) {
      const auto make = [&] {
        return std::make_unique<cordma::verbs::queue_pair>(loop_.pd, cq_, cq_, capabilities);
      };
      auto one = make(), other = make();
      support::raw::connect(loop_.ctx, loop_.port, *one, other->num());
      support::raw::connect(loop_.ctx, loop_.port, *other, one->num());
      ones_.push_back(std::move(one));
      others_.push_back(std::move(other));
    }
  }
  void writes(std::uint64_t n, unsigned connections) {
    for (std::uint64_t posted = 0, ended = 0; ended < n; ended += support::raw::reap(cq_).sends) {
      for (; posted < n && posted - ended < depth; ++posted)
        support::raw::post(*ones_[posted % connections], write_of(loop_));
    }
  }

 private:
  // A connection's queue pair has these capabilities, too.
  static constexpr cordma::verbs::queue_pair_capabilities capabilities{};
  raw_loopback loop_;
  cordma::verbs::completion_queue cq_{loop_.ctx, 4 * depth};
  std::vector<std::unique_ptr<cordma::verbs::queue_pair>> ones_, others_;
};

}  // namespace

BENCH_ON_DEVICE("scale/threads", "Do two threads do twice as much as one?") {
  if (std::thread::hardware_concurrency() < 2) return;
  two_threads both;
  two_threads::result arithmetic, raw, ours;
  for (int i = 0; i < rounds; ++i) {
    both.round([](thread_work&, std::uint64_t n) { thread_work::arithmetic(n); }, arithmetic);
    // The sides take turns at standing next to the control.
    const auto raw_round = [&] {
      both.round([](thread_work& t, std::uint64_t n) { t.raw(n); }, raw);
    };
    if (i % 2 == 0) raw_round();
    both.round([](thread_work& t, std::uint64_t n) { t.ours(n); }, ours);
    if (i % 2 != 0) raw_round();
  }
  // The arithmetic shows what two processors gain in a loop that shares nothing.
  recorder.count("arithmetic, the control", "2 threads", "x 1", bench::median(arithmetic.gains));
  const double raw_gain = bench::median(raw.gains);
  recorder.count("raw verbs", "2 threads", "x 1", raw_gain);
  recorder.count("WRITE, depth 64", "1 thread", "1/s", bench::median(ours.one),
                 bench::median(raw.one));
  recorder.count("WRITE, depth 64", "2 threads", "x 1", bench::median(ours.gains), raw_gain);
}

BENCH_ON_DEVICE("scale/connections", "Are a thousand connections as quick as one?") {
  {
    raw_crowd raw;
    bench::compare_rounds(
        recorder, "raw verbs, 1000 queue pairs beside 1", per_round, rounds,
        [&](std::uint64_t n) { raw.writes(n, 1); },
        [&](std::uint64_t n) { raw.writes(n, crowd::count); });
  }
  crowd ours;
  bench::compare_rounds(
      recorder, "1000 connections beside 1", per_round, rounds,
      [&](std::uint64_t n) { ours.writes(n, 1); },
      [&](std::uint64_t n) { ours.writes(n, crowd::count); });
  recorder.count("1000 connections", "completion queues", "", double(ours.queues()));
  recorder.count("an end of a connection", "registered", "B", ours.registered_each());
  recorder.count("an end of a connection", "resident", "B", ours.resident_each());
}
