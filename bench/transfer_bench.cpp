// What co_await adds to the work requests themselves, beside raw verbs on the same device.

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
template <ibv_wr_opcode Opcode>
struct raw_request {
  explicit raw_request(const raw_loopback& l) {
    constexpr bool is_atomic = Opcode >= IBV_WR_ATOMIC_CMP_AND_SWP;
    constexpr bool may_be_inline = Opcode == IBV_WR_RDMA_WRITE || Opcode == IBV_WR_SEND;
    sge = {.addr = reinterpret_cast<std::uint64_t>(l.local.bytes().data()),
           .length = is_atomic ? 8u : unsigned{size_bytes},
           .lkey = l.local.slice().lkey()};
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = Opcode;
    wr.send_flags = IBV_SEND_SIGNALED;
    if (may_be_inline && size_bytes <= l.raw_a.capabilities().inline_max)
      wr.send_flags |= IBV_SEND_INLINE;
    const cordma::remote_mr_slice remote = l.remote.remote_slice();
    if constexpr (is_atomic) {
      wr.wr.atomic = {remote.address(), Opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? 1u : 0u, 0,
                      remote.rkey()};
    } else if constexpr (Opcode != IBV_WR_SEND) {
      wr.wr.rdma = {remote.address(), remote.rkey()};
    }
  }
  raw_request(const raw_request&) = delete;  // It points to its slice.

  ibv_sge sge{};
  ibv_send_wr wr{};
};

struct raw_receive {
  explicit raw_receive(raw_loopback& l)
      : sge{.addr = reinterpret_cast<std::uint64_t>(l.remote.bytes().data()),
            .length = size_bytes,
            .lkey = l.remote.slice().lkey()} {}
  raw_receive(const raw_receive&) = delete;
  ibv_sge sge;
  ibv_recv_wr wr{.wr_id = 0, .next = nullptr, .sg_list = &sge, .num_sge = 1};
};

/// What one task does at depth 1, and each of `depth` at that depth.
template <class Make>
task<> one_by_one(raw_loopback& l, std::uint64_t n, Make make) {
  for (std::uint64_t i = 0; i < n; ++i) co_await make(l);
}

template <class Make>
task<> by_tasks(raw_loopback& l, std::uint64_t n, Make make) {
  constexpr std::uint64_t depth = raw_loopback::depth;
  cordma::scope tasks{l.home};
  for (std::uint64_t i = 0; i < depth; ++i)
    tasks.spawn(one_by_one(l, n / depth + (i < n % depth ? 1 : 0), make));
  co_await tasks.join();
}
// What is asked for, as a program would write it after `co_await`: not functions, which would hand
// it on in memory.
constexpr auto a_write = [](raw_loopback& l) {
  return cordma::write(l.local.slice(0, size_bytes), l.remote.remote_slice());
};

/// The same by one task, which holds `depth` handles.
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
  const auto run_raw_making = [&](std::uint64_t n, std::uint32_t depth) {
    std::optional<raw_request<Opcode>> request;
    l.run_raw_making([&] { return &request.emplace(l).wr; }, n, depth);
  };
  recorder.compare(
      "depth 1", [&](std::uint64_t n) { run_raw_making(n, 1); },
      [&](std::uint64_t n) { l.home.run(one_by_one(l, n, make)); });
  recorder.compare(
      "depth 64", [&](std::uint64_t n) { run_raw_making(n, raw_loopback::depth); },
      [&](std::uint64_t n) { l.home.run(by_tasks(l, n, make)); });
}

constexpr std::size_t batch = 16;

template <std::size_t... I>
task<> write_batches(raw_loopback& l, std::uint64_t n, std::index_sequence<I...>) {
  for (; n > 0; --n) co_await l.a->post_all((static_cast<void>(I), a_write(l))...);
}

/// As many requests with one doorbell, of which the last has a completion entry.
struct raw_batch {
  explicit raw_batch(const raw_loopback& l) : raw_batch{l, std::make_index_sequence<batch>{}} {}
  template <std::size_t... I>
  raw_batch(const raw_loopback& l, std::index_sequence<I...>)
      : requests{(static_cast<void>(I), raw_request<IBV_WR_RDMA_WRITE>{l})...} {
    for (std::size_t i = 0; i + 1 < batch; ++i) {
      requests[i].wr.next = &requests[i + 1].wr;
      requests[i].wr.send_flags &= ~unsigned{IBV_SEND_SIGNALED};
    }
  }
  std::array<raw_request<IBV_WR_RDMA_WRITE>, batch> requests;
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
  explicit half_raw(raw_loopback& l) : l_{l}, raw_{l} {
    cordma::test::connect(l.ctx, l.port, from_, to_.num());
    cordma::test::connect(l.ctx, l.port, to_, from_.num());
    cordma::test::connect(l.ctx, l.port, ours_->verbs(), ours_peer_.num());
    cordma::test::connect(l.ctx, l.port, ours_peer_, ours_->verbs().num());
  }
  /// One of the two is made each time.
  void run_raw_making_sends(std::uint64_t n) {
    std::optional<raw_request<IBV_WR_SEND>> request;
    for (; n > 0; --n) {
      receive(to_);
      send(from_, request.emplace(l_));
      await(sends_);
      await(receives_);
    }
  }
  void run_raw_making_receives(std::uint64_t n) {
    std::optional<raw_receive> request;
    for (; n > 0; --n) {
      receive(to_, request.emplace(l_));
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
  static void check(int rc) {
    if (rc != 0) throw cordma::error{cordma::errno_failure(rc, "post")};
  }
  void send(cordma::verbs::queue_pair& by) { send(by, raw_); }
  static void send(cordma::verbs::queue_pair& by, raw_request<IBV_WR_SEND>& request) {
    ibv_send_wr* bad = nullptr;
    check(by.post_send(&request.wr, &bad));
  }
  void receive(cordma::verbs::queue_pair& at) { receive(at, raw_receive_); }
  static void receive(cordma::verbs::queue_pair& at, raw_receive& request) {
    ibv_recv_wr* bad = nullptr;
    check(at.post_recv(&request.wr, &bad));
  }
  static void await(cordma::verbs::completion_queue& cq) {
    for (raw_loopback::reaped count; count.sends + count.receives == 0;)
      count = raw_loopback::reap(cq);
  }

  raw_loopback& l_;
  raw_request<IBV_WR_SEND> raw_;
  raw_receive raw_receive_{l_};
  cordma::verbs::completion_queue sends_{l_.ctx, 64}, receives_{l_.ctx, 64};
  cordma::verbs::queue_pair from_{l_.pd, sends_, sends_, few},
      to_{l_.pd, receives_, receives_, few};
  cordma::verbs::queue_pair ours_peer_{l_.pd, sends_, receives_, few};
  std::unique_ptr<cordma::queue_pair> ours_ = l_.make_queue_pair(few);
};

/// What one task takes of many.
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
  raw_request<IBV_WR_RDMA_WRITE> raw{l};
  recorder.compare(
      "depth 64, handles", [&](std::uint64_t n) { l.run_raw(raw.wr, n, raw_loopback::depth); },
      [&](std::uint64_t n) { l.home.run(by_handles(l, n)); });
}

BENCH_ON_DEVICE("transfer/write/64B/batch", "And to sixteen with one doorbell?") {
  raw_loopback l;
  recorder.compare(
      "16 at once",
      [&](std::uint64_t n) {
        std::optional<raw_batch> requests;
        l.run_raw_making([&] { return &requests.emplace(l).requests[0].wr; }, n, 1);
      },
      [&](std::uint64_t n) { l.home.run(write_batches(l, n, std::make_index_sequence<batch>{})); });
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
    std::optional<raw_receive> receive;
    std::optional<raw_request<IBV_WR_SEND>> send;
    l.run_raw_receiving_making([&] { return &receive.emplace(l).wr; },
                               [&] { return &send.emplace(l).wr; }, n, depth);
  };
  recorder.compare(
      "depth 1", [&](std::uint64_t n) { run_raw(n, 1); },
      [&](std::uint64_t n) { l.home.run(send_and_receive(l, n)); });
  recorder.compare(
      "depth 1, two tasks", [&](std::uint64_t n) { run_raw(n, 1); },
      [&](std::uint64_t n) { l.home.run(cordma::when_all(receive_each(l, n), send_each(l, n))); });
  for (std::uint32_t i = 0; i < raw_loopback::depth; ++i)
    l.b->post_recv(l.remote.slice(0, size_bytes));
  constexpr auto make_send = [](raw_loopback& of) {
    return of.a->send(of.local.slice(0, size_bytes));
  };
  recorder.compare(
      "depth 64", [&](std::uint64_t n) { run_raw(n, raw_loopback::depth); },
      [&](std::uint64_t n) {
        l.home.run(cordma::when_all(take_each(l, n), by_tasks(l, n, make_send)));
      });
}

BENCH_ON_DEVICE("transfer/send/64B/half", "And to each of them alone?") {
  raw_loopback l;
  half_raw half{l};
  recorder.compare(
      "SEND, depth 1", [&](std::uint64_t n) { half.run_raw_making_sends(n); },
      [&](std::uint64_t n) { l.home.run(half.run_send(n)); });
  recorder.compare(
      "receive, depth 1", [&](std::uint64_t n) { half.run_raw_making_receives(n); },
      [&](std::uint64_t n) { l.home.run(half.run_receive(n)); });
}
