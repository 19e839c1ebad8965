// Measures what co_await adds to the work requests themselves, beside raw verbs on the same device.

#include "support/bench.hpp"
#include "support/raw_loopback.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>

#include <array>
#include <memory>
#include <optional>
#include <utility>

namespace {

using bench::raw_loopback;
using cordma::task;

constexpr std::size_t size_bytes = 64;

/// A raw request that does what ours does, inlined or not as ours would be.
auto making(const raw_loopback& l, ibv_wr_opcode opcode) {
  return [&l, opcode] { return l.request(opcode, size_bytes); };
}

/// The work of the one task at depth 1, and of each of `depth` tasks at that depth.
template <class Make>
task<> one_by_one(raw_loopback& l, std::uint64_t n, Make make) {
  for (std::uint64_t i = 0; i < n; ++i) co_await make(l);
}

template <class Make>
task<> by_tasks(raw_loopback& l, std::uint64_t n, Make make) {
  constexpr std::uint64_t depth = raw_loopback::depth;
  cordma::scope tasks{l.executor};
  for (std::uint64_t i = 0; i < depth; ++i)
    tasks.spawn(one_by_one(l, n / depth + (i < n % depth ? 1 : 0), make));
  co_await tasks.join();
}
// The operations, as a program would write them after `co_await`: not functions, which would hand
// them on in memory.
constexpr auto a_write = [](raw_loopback& l) {
  return cordma::write(l.local.slice(0, size_bytes), l.remote.remote_slice());
};

/// Does the work in one task, which holds `depth` handles.
task<> by_handles(raw_loopback& l, std::uint64_t n) {
  using handle = decltype(l.a->post(a_write(l)));
  std::array<std::optional<handle>, raw_loopback::depth> handles;
  for (std::uint64_t i = 0; i < n; ++i) {
    auto& h = handles[i % raw_loopback::depth];
    if (h) co_await *h;
    h.emplace(l.a->post(a_write(l)));
  }
  for (auto& h : handles) {
    if (h) co_await *h;
  }
}

constexpr auto make_write = [](raw_loopback& l) {
  return l.a->write(l.local.slice(0, size_bytes), l.remote.remote_slice());
};
constexpr auto make_read = [](raw_loopback& l) {
  return l.a->read(l.local.slice(0, size_bytes), l.remote.remote_slice());
};
constexpr auto make_add = [](raw_loopback& l) {
  return l.a->fetch_add(l.remote.remote_slice().first(8), 1);
};
constexpr auto make_swap = [](raw_loopback& l) {
  return l.a->compare_swap(l.remote.remote_slice().first(8), 0, 0);
};

template <ibv_wr_opcode Opcode, class Make>
void compare_each_depth(bench::recorder& recorder, raw_loopback& l, Make make) {
  recorder.compare(
      "depth 1", [&](std::uint64_t n) { l.raw.run(making(l, Opcode), n, 1); },
      [&](std::uint64_t n) { l.executor.run(one_by_one(l, n, make)); });
  recorder.compare(
      "depth 64", [&](std::uint64_t n) { l.raw.run(making(l, Opcode), n, raw_loopback::depth); },
      [&](std::uint64_t n) { l.executor.run(by_tasks(l, n, make)); });
}

constexpr std::size_t batch = 16;

template <std::size_t... I>
task<> write_batches(raw_loopback& l, std::uint64_t n, std::index_sequence<I...>) {
  for (; n > 0; --n) co_await l.a->post_all((static_cast<void>(I), a_write(l))...);
}

/// Some requests with one doorbell; only the last has a completion entry.
struct raw_batch {
  explicit raw_batch(const raw_loopback& l) : raw_batch{l, std::make_index_sequence<batch>{}} {}
  template <std::size_t... I>
  raw_batch(const raw_loopback& l, std::index_sequence<I...>)
      : requests{(static_cast<void>(I), l.request(IBV_WR_RDMA_WRITE, size_bytes))...} {
    for (std::size_t i = 0; i + 1 < batch; ++i) {
      requests[i].wr.next = &requests[i + 1].wr;
      requests[i].wr.send_flags &= ~unsigned{IBV_SEND_SIGNALED};
    }
  }
  ibv_send_wr& first() noexcept { return requests[0].wr; }
  std::array<support::raw::request, batch> requests;
};

task<> send_each(raw_loopback& l, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) co_await l.a->send(l.local.slice(0, size_bytes));
}
task<> receive_each(raw_loopback& l, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) co_await l.b->recv(l.remote.slice(0, size_bytes));
}

/// One task does both, as raw's loop does.
task<> send_and_receive(raw_loopback& l, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    l.b->post_recv(l.remote.slice(0, size_bytes));
    co_await l.a->send(l.local.slice(0, size_bytes));
    static_cast<void>(co_await l.b->next_message());
  }
}

/// A SEND of which one end is raw verbs' in both loops: what the other adds is its own.
class half_raw {
 public:
  explicit half_raw(raw_loopback& l) : l_{l} {
    cordma::test::connect(l.ctx, l.port, from_, to_.num());
    cordma::test::connect(l.ctx, l.port, to_, from_.num());
    cordma::test::connect(l.ctx, l.port, ours_->verbs(), ours_peer_.num());
    cordma::test::connect(l.ctx, l.port, ours_peer_, ours_->verbs().num());
  }
  void run_raw(std::uint64_t n) {
    for (; n > 0; --n) {
      receive(to_);
      send(from_);
      await(sends_);
      await(receives_);
    }
  }
  task<> run_send(std::uint64_t n) {
    for (; n > 0; --n) {
      receive(ours_peer_);
      co_await ours_->send(l_.local.slice(0, size_bytes));
      await(receives_);
    }
  }
  task<> run_receive(std::uint64_t n) {
    for (; n > 0; --n) {
      ours_->post_recv(l_.remote.slice(0, size_bytes));
      send(ours_peer_);
      await(sends_);
      static_cast<void>(co_await ours_->next_message());
    }
  }

 private:
  static constexpr cordma::verbs::queue_pair_capabilities few{.send_wr_max = 16, .recv_wr_max = 16};
  void send(cordma::verbs::queue_pair& by) {
    support::raw::post(by, l_.request(IBV_WR_SEND, size_bytes));
  }
  void receive(cordma::verbs::queue_pair& at) { support::raw::post(at, l_.receive(size_bytes)); }
  static void await(cordma::verbs::completion_queue& cq) {
    for (support::raw::counts some; some.sends + some.receives == 0;) some = support::raw::reap(cq);
  }

  raw_loopback& l_;
  cordma::verbs::completion_queue sends_{l_.ctx, 64}, receives_{l_.ctx, 64};
  cordma::verbs::queue_pair from_{l_.pd, sends_, sends_, few},
      to_{l_.pd, receives_, receives_, few};
  cordma::verbs::queue_pair ours_peer_{l_.pd, sends_, receives_, few};
  std::unique_ptr<cordma::queue_pair> ours_ = l_.make_queue_pair(few);
};

/// Takes, in one task, the messages that many tasks send.
task<> take_each(raw_loopback& l, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) {
    static_cast<void>(co_await l.b->next_message());
    l.b->post_recv(l.remote.slice(0, size_bytes));
  }
}

}  // namespace

BENCH_ON_DEVICE("transfer/write/64B", "What does co_await add to a small WRITE?") {
  raw_loopback l;
  compare_each_depth<IBV_WR_RDMA_WRITE>(recorder, l, make_write);
  recorder.compare(
      "depth 64, handles",
      [&](std::uint64_t n) { l.raw.run(making(l, IBV_WR_RDMA_WRITE), n, raw_loopback::depth); },
      [&](std::uint64_t n) { l.executor.run(by_handles(l, n)); });
}

BENCH_ON_DEVICE("transfer/write/64B/batch", "And to sixteen with one doorbell?") {
  raw_loopback l;
  recorder.compare(
      "16 at once", [&](std::uint64_t n) { l.raw.run([&] { return raw_batch{l}; }, n, 1); },
      [&](std::uint64_t n) {
        l.executor.run(write_batches(l, n, std::make_index_sequence<batch>{}));
      });
}

BENCH_ON_DEVICE("transfer/read/64B", "What does co_await add to a small READ?") {
  raw_loopback l;
  compare_each_depth<IBV_WR_RDMA_READ>(recorder, l, make_read);
}

BENCH_ON_DEVICE("transfer/compare_swap", "What does co_await add to an atomic?") {
  raw_loopback l;
  compare_each_depth<IBV_WR_ATOMIC_CMP_AND_SWP>(recorder, l, make_swap);
}

BENCH_ON_DEVICE("transfer/fetch_add", "What does co_await add to the other atomic?") {
  raw_loopback l;
  compare_each_depth<IBV_WR_ATOMIC_FETCH_AND_ADD>(recorder, l, make_add);
}

BENCH_ON_DEVICE("transfer/send/64B", "What does co_await add to a small SEND and its receive?") {
  raw_loopback l;
  const auto run_raw = [&](std::uint64_t n, std::uint32_t depth) {
    l.raw.run_receiving([&] { return l.receive(size_bytes); }, making(l, IBV_WR_SEND), n, depth);
  };
  recorder.compare(
      "depth 1", [&](std::uint64_t n) { run_raw(n, 1); },
      [&](std::uint64_t n) { l.executor.run(send_and_receive(l, n)); });
  recorder.compare(
      "depth 1, two tasks", [&](std::uint64_t n) { run_raw(n, 1); },
      [&](std::uint64_t n) {
        l.executor.run(cordma::when_all(receive_each(l, n), send_each(l, n)));
      });
  for (std::uint32_t i = 0; i < raw_loopback::depth; ++i)
    l.b->post_recv(l.remote.slice(0, size_bytes));
  constexpr auto make_send = [](raw_loopback& of) {
    return of.a->send(of.local.slice(0, size_bytes));
  };
  recorder.compare(
      "depth 64", [&](std::uint64_t n) { run_raw(n, raw_loopback::depth); },
      [&](std::uint64_t n) {
        l.executor.run(cordma::when_all(take_each(l, n), by_tasks(l, n, make_send)));
      });
}

BENCH_ON_DEVICE("transfer/send/64B/half", "And to each of them alone?") {
  raw_loopback l;
  half_raw half{l};
  recorder.compare(
      "SEND, depth 1", [&](std::uint64_t n) { half.run_raw(n); },
      [&](std::uint64_t n) { l.executor.run(half.run_send(n)); });
  recorder.compare(
      "receive, depth 1", [&](std::uint64_t n) { half.run_raw(n); },
      [&](std::uint64_t n) { l.executor.run(half.run_receive(n)); });
}
