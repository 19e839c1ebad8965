// Measures calls, beside messages and bulk writes by raw verbs.

#include "support/bench.hpp"
#include "support/raw_messages.hpp"
#include "support/raw_threads.hpp"
#include "support/rpc_serving.hpp"

#include <cordma/coro/when_all.hpp>

#include <malloc.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace {

using cordma::task;
namespace rpc = cordma::rpc;

using bench::bulk_bytes;
using bench::echo;
using bench::echo_bytes;
using bench::view;

task<> call_each(rpc::client& c, view request, std::uint64_t n) {
  for (; n > 0; --n) static_cast<void>(co_await c.call<echo>(request));
}

task<> call_many(cordma::runtime& rt, rpc::client& c, view request, std::uint64_t n,
                 unsigned depth) {
  cordma::scope callers{rt.executor()};
  for (unsigned i = 0; i < depth; ++i)
    callers.spawn(call_each(c, request, n / depth + (i < n % depth ? 1 : 0)));
  co_await callers.join();
}

/// A client and a server in one thread, which polls as the raw loop does.
class one_thread {
 public:
  one_thread() { server_.rt.run(open()); }
  [[nodiscard]] cordma::runtime& rt() noexcept { return server_.rt; }
  [[nodiscard]] bench::serving& server() noexcept { return server_; }
  [[nodiscard]] rpc::client& calling() noexcept { return calling_; }
  void calls(view request, std::uint64_t n, unsigned depth) {
    server_.rt.run(call_many(server_.rt, calling_, request, n, depth));
  }

 private:
  task<> open() {
    cordma::runtime& rt = server_.rt;
    cordma::listener acceptor = rt.listen();
    auto [there, here] =
        co_await cordma::when_all(rt.connect(acceptor.local_endpoint()), acceptor.accept());
    server_.work.spawn(server_.answering.serve(std::move(here)));
    calling_ = rpc::client{std::move(there)};
  }
  bench::serving server_;
  rpc::client calling_;
};

/// A server on another thread, with a runtime of its own. That thread is busy with it only while
/// there are calls: it serves the raw loop, too.
class two_threads {
 public:
  explicit two_threads(bench::second_thread& other) : other_{other} {
    cordma::listener acceptor = rt_.listen();
    const std::function<void()> begin = [&] {
      server_.emplace();
      for (int n = 0; n < 2; ++n) server_->begin(acceptor.local_endpoint());
    };
    other_.start(&begin);
    for (rpc::client* each : {&calling_, &beside_}) *each = rpc::client{rt_.run(acceptor.accept())};
    other_.wait();
  }
  ~two_threads() {
    calling_ = {};
    beside_ = {};
    const std::function<void()> end = [this] { server_.reset(); };
    other_.start(&end);
    other_.wait();
  }
  /// Each side keeps what it once needed. How many of one connection's calls are at the server at
  /// once depends on how the threads meet. The calls of two connections that wait when the server
  /// begins are always more.
  void warm_up(view request, unsigned depth) {
    const std::uint64_t n = std::uint64_t{64} * depth;
    const std::function<void()> serve = [this, n] { server_->reply(2 * n); };
    const auto begin = [&]() -> task<> {
      other_.start(&serve);
      co_return;
    };
    rt_.run(cordma::when_all(call_many(rt_, calling_, request, n, depth),
                             call_many(rt_, beside_, request, n, depth), begin()));
    other_.wait();
  }
  void calls(view request, std::uint64_t n, unsigned depth) {
    const std::function<void()> serve = [this, n] { server_->reply(n); };
    other_.start(&serve);
    rt_.run(call_many(rt_, calling_, request, n, depth));
    other_.wait();
  }

 private:
  bench::second_thread& other_;
  std::optional<bench::serving> server_;
  cordma::runtime rt_{bench::busy()};
  rpc::client calling_, beside_;
};

constexpr unsigned calls_at_once = 64;

/// WRITEs by raw verbs, to each of some memory from another.
class raw_writes {
 public:
  raw_writes(std::span<cordma::local_mr> to, std::span<cordma::local_mr> from)
      : to_{bench::register_for_raw(loop_.pd, to)},
        from_{bench::register_for_raw(loop_.pd, from)} {}
  /// Keeps as many WRITEs in flight as there is memory for.
  void write_all(std::uint64_t n) {
    std::size_t next = 0;
    const auto make = [&] {
      const cordma::verbs::memory_region& to = to_[next];
      const cordma::verbs::memory_region& from = from_[next];
      next = next + 1 == to_.size() ? 0 : next + 1;
      return support::raw::request{IBV_WR_RDMA_WRITE,
                                   support::raw::piece(from.address(), bulk_bytes, from.lkey()),
                                   {reinterpret_cast<std::uint64_t>(to.address()), to.rkey()}};
    };
    loop_.raw.run(make, n, std::uint32_t(to_.size()));
  }

 private:
  bench::raw_loopback loop_;
  bench::raw_regions to_, from_;
};

/// A thread that echoes on a socket of the loopback until its peer is gone, and one that asks it.
class tcp_echo {
 public:
  tcp_echo() {
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof where;
    auto* const address = reinterpret_cast<sockaddr*>(&where);
    const int acceptor = ::socket(AF_INET, SOCK_STREAM, 0);
    here_ = ::socket(AF_INET, SOCK_STREAM, 0);
    const bool is_connected = ::bind(acceptor, address, size) == 0 && ::listen(acceptor, 1) == 0 &&
                              ::getsockname(acceptor, address, &size) == 0 &&
                              ::connect(here_, address, size) == 0;
    there_ = ::accept(acceptor, nullptr, nullptr);
    ::close(acceptor);
    if (!is_connected || there_ < 0) throw std::runtime_error{"no TCP on the loopback"};
    for (const int s : {here_, there_}) {
      const int yes = 1;
      ::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    }
    echoing_ = std::thread{[this] {
      std::array<char, echo_bytes> text;
      while (::recv(there_, text.data(), text.size(), MSG_WAITALL) == ssize_t(text.size()))
        static_cast<void>(::send(there_, text.data(), text.size(), MSG_NOSIGNAL));
    }};
  }
  ~tcp_echo() {
    ::shutdown(here_, SHUT_RDWR);
    echoing_.join();
    ::close(here_);
    ::close(there_);
  }
  tcp_echo(const tcp_echo&) = delete;
  void round_trips(std::uint64_t n) const {
    std::array<char, echo_bytes> text{};
    for (; n > 0; --n) {
      static_cast<void>(::send(here_, text.data(), text.size(), MSG_NOSIGNAL));
      static_cast<void>(::recv(here_, text.data(), text.size(), MSG_WAITALL));
    }
  }

 private:
  int here_ = -1, there_ = -1;
  std::thread echoing_;
};

/// Idle connections of a server: each takes half of what a connection takes, and its channel.
class idle_connections {
 public:
  explicit idle_connections(bool is_shared)
      : pool_{is_shared ? &rt_.share_receives({.buffers = 16 * count}) : nullptr},
        acceptor_{rt_.listen({}, {}, options())} {
    answering_.handle<echo>(&bench::echo_back);
    for (unsigned n = 0; n < count; ++n) rt_.run(join());
    if (is_shared) registered_ += pool_->memory_bytes() / pool_->buffers() * pool_->promised();
  }
  ~idle_connections() {
    clients_.clear();
    work_.request_stop();
    rt_.run(work_.join());
  }
  [[nodiscard]] double registered_each() const { return double(registered_) / count; }
  [[nodiscard]] double heap_each() const { return double(heap_) / count; }

 private:
  struct usage {
    std::size_t registered, heap;
  };
  [[nodiscard]] cordma::connection_options options() const {
    cordma::connection_options o;
    o.receives_from = pool_;
    return o;
  }
  usage now() { return {rt_.memory().statistics().in_use_bytes, ::mallinfo2().uordblks}; }
  void add(const usage& from, const usage& to, std::size_t ends) {
    registered_ += (to.registered - from.registered) / ends;
    heap_ += (to.heap - from.heap) / ends;
  }
  task<> join() {
    const usage nothing = now();
    auto [client, server] =
        co_await cordma::when_all(rt_.connect(acceptor_.local_endpoint()), acceptor_.accept());
    const usage connected = now();
    clients_.emplace_back(std::move(client));
    const usage with_client = now();
    const std::size_t before = answering_.counters().connections;
    work_.spawn(answering_.serve(std::move(server)));
    co_await cordma::test::until(rt_.executor(),
                                 [&] { return answering_.counters().connections > before; });
    add(nothing, connected, 2);
    add(with_client, now(), 1);
    const std::array<std::byte, echo_bytes> request{};
    static_cast<void>(co_await clients_.back().call<echo>(request));
  }

  static constexpr unsigned count = 64;
  cordma::runtime rt_{bench::busy()};
  cordma::shared_receives* pool_;
  cordma::listener acceptor_;
  rpc::server answering_;
  cordma::scope work_{rt_.executor()};
  std::vector<rpc::client> clients_;
  std::size_t registered_ = 0, heap_ = 0;
};

}  // namespace

BENCH_ON_DEVICE("rpc/echo/thread", "What does a call cost, both ends in one thread?") {
  bench::raw_messages raw{echo_bytes};
  one_thread ours;
  const std::vector<std::byte> request(echo_bytes);
  recorder.compare(
      "32 B, depth 1", [&](std::uint64_t n) { raw.round_trips(n); },
      [&](std::uint64_t n) { ours.calls(request, n, 1); });
}

BENCH_ON_DEVICE("rpc/echo", "What does a call cost, beside messages there and back?") {
  if (std::thread::hardware_concurrency() < 2) return;
  const bench::pinned here{0};
  bench::second_thread other;
  const std::vector<std::byte> request(echo_bytes);
  for (const unsigned depth : {1u, 64u}) {
    bench::raw_threads raw{other, echo_bytes, depth};
    two_threads ours{other};
    ours.warm_up(request, depth);
    recorder.compare(
        "32 B, depth " + std::to_string(depth), [&](std::uint64_t n) { raw.round_trips(n, depth); },
        [&](std::uint64_t n) { ours.calls(request, n, depth); });
  }
}

BENCH("rpc/tcp", "For scale: the same over TCP on the loopback, without any protocol?") {
  const tcp_echo tcp;
  recorder.measure("32 B, depth 1", [&](std::uint64_t n) { tcp.round_trips(n); });
}

BENCH_ON_DEVICE("rpc/threads", "Does a second server thread, with clients of its own, double it?") {
  if (std::thread::hardware_concurrency() < 2) return;
  const bench::pinned here{0};
  bench::second_thread other;
  const std::vector<std::byte> request(echo_bytes);
  one_thread first;
  std::optional<one_thread> second;
  // Each side keeps what it once needed.
  const auto warm_up = [&](one_thread& ends) {
    ends.calls(request, std::uint64_t{64} * calls_at_once, 2 * calls_at_once);
  };
  warm_up(first);
  const std::function<void()> make = [&] { warm_up(second.emplace()); };
  const std::function<void()> drop = [&] { second.reset(); };
  other.start(&make);
  other.wait();
  const auto on_one = [&](std::uint64_t n) { first.calls(request, n, calls_at_once); };
  std::uint64_t half = 0;
  const std::function<void()> on_other = [&] { second->calls(request, half, calls_at_once); };
  const auto on_both = [&](std::uint64_t n) {
    half = n / 2;
    other.start(&on_other);
    first.calls(request, n - n / 2, calls_at_once);
    other.wait();
  };
  recorder.measure("1 thread", on_one);
  const double one = 1e9 / recorder.figures().front().value;
  const std::size_t next = recorder.figures().size();
  recorder.measure("2 threads", on_both);
  const double both = 1e9 / recorder.figures()[next].value;
  recorder.count("1 thread", "calls", "1/s", one);
  recorder.count("2 threads", "calls", "1/s", both, one);
  other.start(&drop);
  other.wait();
}

BENCH_ON_DEVICE("rpc/bulk/thread",
                "How near to a WRITE does a call with a source come in one thread?") {
  recorder.set_round_length(bench::bulk_round);
  // With two at once, all bytes are in the processor's cache; with sixteen, none are.
  for (const unsigned depth : {2u, 16u}) {
    one_thread ours;
    ours.server().to = bench::bulk_memory(ours.rt(), depth);
    bench::putting puts{ours.rt(), ours.calling(), depth};
    raw_writes raw{ours.server().to, puts.from()};
    const std::string which = "1 MiB, depth " + std::to_string(depth);
    const std::size_t first = recorder.figures().size();
    puts.put(4 * depth);
    recorder.compare(
        which, [&](std::uint64_t n) { raw.write_all(n); }, [&](std::uint64_t n) { puts.put(n); });
    bench::count_bandwidth(recorder, which, first);
  }
}

BENCH_ON_DEVICE("rpc/idle", "What memory does an idle connection take at its server?") {
  const idle_connections single{false};
  recorder.count("buffers of its own", "registered", "B", single.registered_each());
  recorder.count("buffers of its own", "malloc", "B", single.heap_each());
  const idle_connections shared{true};
  recorder.count("shared buffers", "registered", "B", shared.registered_each(),
                 single.registered_each());
  recorder.count("shared buffers", "malloc", "B", shared.heap_each(), single.heap_each());
}
