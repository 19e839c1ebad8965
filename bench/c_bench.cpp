// Measures what the C library's calls add to one operation, beside raw verbs, and what its
// callbacks cost beside coroutines.

#include "support/bench.hpp"
#include "support/ping_pong.hpp"
#include "support/raw_loopback.hpp"
#include "support/second_thread.hpp"

#include <cordma/coro/scope.hpp>

#include <cordma.h>

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

namespace {

using bench::latencies;
using bench::link_end;
using bench::noticing;
using bench::raw_loopback;

constexpr std::size_t size_bytes = 8;

void check(int status) {
  if (status != CORDMA_OK) throw std::runtime_error{cordma_error_text()};
}

/// A context of this thread that polls busily.
cordma_context busy_context() {
  cordma_options options = CORDMA_OPTIONS;
  options.device = std::getenv("CORDMA_TEST_DEVICE");  // NOLINT(concurrency-mt-unsafe)
  options.progress = CORDMA_BUSY;
  cordma_context made = nullptr;
  check(cordma_init(&options, &made));
  return made;
}

cordma_memory allocate(cordma_context in, unsigned access) {
  cordma_memory made = nullptr;
  void* at = nullptr;
  check(cordma_allocate(in, std::size_t{64} << 10, access, &made, &at));
  return made;
}

using address_text = std::array<char, 64>;
using memory_name = std::array<unsigned char, CORDMA_NAME_BYTES>;

cordma_listener listen(cordma_context in, address_text& address) {
  cordma_listener made = nullptr;
  check(cordma_listen(in, nullptr, &made));
  check(cordma_address(made, address.data(), address.size()));
  return made;
}

/// A connection whose two ends are on one context.
struct c_loopback {
  c_loopback() {
    address_text address{};
    cordma_listener listener = listen(context, address);
    check(cordma_start_connect(
        context, address.data(), CORDMA_FOREVER,
        [](cordma_connection made, int, void* user) {
          *static_cast<cordma_connection*>(user) = made;
        },
        &a));
    check(cordma_accept(listener, CORDMA_FOREVER, &b));
    // The accepting side may be first: its next call lets the other end.
    cordma_connection none = nullptr;
    while (a == nullptr) static_cast<void>(cordma_accept(listener, 1000, &none));
    memory_name name{};
    check(cordma_export(target, name.data()));
    check(cordma_import(a, name.data(), &remote));
  }
  c_loopback(const c_loopback&) = delete;
  c_loopback& operator=(const c_loopback&) = delete;
  ~c_loopback() { cordma_release(context, 1'000'000); }

  cordma_context context = busy_context();
  cordma_connection a = nullptr, b = nullptr;
  cordma_memory local = allocate(context, CORDMA_LOCAL);
  cordma_memory target = allocate(context, CORDMA_REMOTE_WRITE | CORDMA_REMOTE_READ);
  cordma_remote remote = nullptr;
};

/// Keeps `depth` writes in flight from their callbacks, and sends a message when all have ended.
struct posted_writes {
  c_loopback& link;
  std::uint64_t left;
  std::uint64_t in_flight = 0;

  static void on_end(cordma_connection, int status, std::uint64_t, void* user) {
    auto& self = *static_cast<posted_writes*>(user);
    check(status);
    --self.in_flight;
    if (self.left > 0) return self.post();
    if (self.in_flight > 0) return;
    cordma_work last{};
    last.kind = CORDMA_SEND;
    last.memory = self.link.local;
    last.bytes = size_bytes;
    check(cordma_post(self.link.a, &last, CORDMA_FOREVER, nullptr, nullptr));
  }
  void post() {
    cordma_work work{};
    work.kind = CORDMA_WRITE;
    work.memory = link.local;
    work.bytes = size_bytes;
    work.remote = link.remote;
    --left;
    ++in_flight;
    check(cordma_post(link.a, &work, CORDMA_FOREVER, &on_end, this));
  }
  void run() {
    while (left > 0 && in_flight < raw_loopback::depth) post();
    std::array<char, size_bytes> into{};
    check(cordma_receive(link.b, into.data(), into.size(), nullptr, CORDMA_FOREVER));
  }
};

cordma::task<> write_each(raw_loopback& l, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i)
    co_await l.a->write(l.local.slice(0, size_bytes), l.remote.remote_slice());
}

cordma::task<> write_by_tasks(raw_loopback& l, std::uint64_t n) {
  constexpr std::uint64_t depth = raw_loopback::depth;
  cordma::scope tasks{l.executor};
  for (std::uint64_t i = 0; i < depth; ++i)
    tasks.spawn(write_each(l, n / depth + (i < n % depth ? 1 : 0)));
  co_await tasks.join();
}

/// The server that a child process is: lets its parent write into memory, until that leaves.
struct c_child {
  c_child() {
    if (::pipe(ends.data()) != 0) throw std::runtime_error{"pipe failed"};
    pid = ::fork();
    if (pid != 0) return;
    serve();
    ::_exit(0);
  }
  c_child(const c_child&) = delete;
  c_child& operator=(const c_child&) = delete;
  ~c_child() { ::waitpid(pid, nullptr, 0); }
  void serve() const {
    const bench::pinned here{1};  // Where `two_processes` has its other process.
    cordma_options options = CORDMA_OPTIONS;
    options.device = std::getenv("CORDMA_TEST_DEVICE");  // NOLINT(concurrency-mt-unsafe)
    cordma_context context = nullptr;
    if (cordma_init(&options, &context) != CORDMA_OK) ::_exit(1);
    address_text address{};
    memory_name name{};
    cordma_listener listener = listen(context, address);
    check(cordma_export(allocate(context, CORDMA_REMOTE_WRITE), name.data()));
    static_cast<void>(::write(ends[1], address.data(), address.size()));
    static_cast<void>(::write(ends[1], name.data(), name.size()));
    cordma_connection parent = nullptr;
    check(cordma_accept(listener, CORDMA_FOREVER, &parent));
    char none = 0;
    static_cast<void>(cordma_receive(parent, &none, 1, nullptr, CORDMA_FOREVER));
  }

  std::array<int, 2> ends{};
  pid_t pid = -1;
};

}  // namespace

// The other process comes first: it is forked.
BENCH_ON_DEVICE("c/processes", "And what does a blocking write in C add between two processes?") {
  if (std::thread::hardware_concurrency() < 2) return;
  const c_child child;
  bench::two_processes both{&bench::ping_pong::serve, size_bytes};
  link_end& here = both.here();
  address_text address{};
  memory_name name{};
  if (::read(child.ends[0], address.data(), address.size()) <= 0 ||
      ::read(child.ends[0], name.data(), name.size()) <= 0)
    throw std::runtime_error{"the child has ended"};
  cordma_context context = busy_context();
  cordma_connection connection = nullptr;
  cordma_remote remote = nullptr;
  check(cordma_connect(context, address.data(), CORDMA_FOREVER, &connection));
  check(cordma_import(connection, name.data(), &remote));
  cordma_memory local = allocate(context, CORDMA_LOCAL);
  bench::compare_latencies(
      recorder, "blocking write, busy", bench::laps{500, 100, 20},
      [&](latencies& to) {
        bench::raw_side& side = here.raw(noticing::busy);
        to.start();
        for (std::uint64_t n = to.round(); n > 0; --n) {
          side.post(here.raw_request(IBV_WR_RDMA_WRITE));
          side.await_sent();
          to.lap();
        }
      },
      [&](latencies& to) {
        to.start();
        for (std::uint64_t n = to.round(); n > 0; --n) {
          check(cordma_write(connection, local, 0, size_bytes, remote, 0, CORDMA_FOREVER));
          to.lap();
        }
      });
  check(cordma_release(context, 1'000'000));
}

BENCH_ON_DEVICE("c/write/8B", "What does a blocking write in C add to raw verbs, in one process?") {
  raw_loopback l;
  c_loopback c;
  recorder.compare(
      "depth 1",
      [&](std::uint64_t n) {
        l.raw.run([&] { return l.request(IBV_WR_RDMA_WRITE, size_bytes); }, n, 1);
      },
      [&](std::uint64_t n) {
        for (; n > 0; --n)
          check(cordma_write(c.a, c.local, 0, size_bytes, c.remote, 0, CORDMA_FOREVER));
      });
  recorder.compare(
      "depth 1, with a deadline",
      [&](std::uint64_t n) {
        l.raw.run([&] { return l.request(IBV_WR_RDMA_WRITE, size_bytes); }, n, 1);
      },
      [&](std::uint64_t n) {
        for (; n > 0; --n) check(cordma_write(c.a, c.local, 0, size_bytes, c.remote, 0, 1'000'000));
      });
}

BENCH_ON_DEVICE("c/callbacks/8B", "What do callbacks in C cost beside coroutines?") {
  raw_loopback l;
  c_loopback c;
  recorder.compare(
      "depth 64, beside coroutines", [&](std::uint64_t n) { l.executor.run(write_by_tasks(l, n)); },
      [&](std::uint64_t n) { posted_writes{c, n}.run(); });
}
