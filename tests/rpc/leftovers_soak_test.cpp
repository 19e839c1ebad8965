// Connections, calls, leases and runtimes leave nothing behind, in this process or in the kernel.
#include <cordma/rpc/client.hpp>

#include "request/queue_pair.hpp"

#include <support/connected_pair.hpp>
#include <support/kernel_counts.hpp>
#include <support/soak.hpp>
#include <support/until.hpp>

#include <cordma/coro/scope.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/rpc/server.hpp>
#include "io/stream_socket.hpp"

#include <catch2/catch.hpp>

#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <cstdio>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

using std::size_t;
using view = std::span<const std::byte>;

struct echo_back : rpc::method<"leftovers.echo", view, view> {};
/// Reads what the call lends.
struct fetch : rpc::method<"leftovers.fetch", rpc::nothing, std::uint64_t> {};
/// Ends its connection instead of answering.
struct lose : rpc::method<"leftovers.lose"> {};
/// Answers when its connection ends.
struct stay : rpc::method<"leftovers.stay"> {};

void abort_of(connection& conn) {
  conn.qp().abort({.code = errc::disconnected, .call = "leftovers"});
}

/// A network of its own, so that no other program's sockets are counted. Where that is not allowed,
/// they are.
bool enter_own_network() {
  if (!test::is_soft() || ::unshare(CLONE_NEWNET) != 0) return false;
  const unique_fd any{::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  ifreq loopback{};
  std::snprintf(loopback.ifr_name, sizeof loopback.ifr_name, "lo");
  loopback.ifr_flags = IFF_UP | IFF_RUNNING;
  REQUIRE(::ioctl(any.get(), SIOCSIFFLAGS, &loopback) == 0);
  return true;
}

/// A runtime with a server and its clients.
class workplace {
 public:
  explicit workplace(std::uint64_t seed) : random_{seed} {
    server_.handle<echo_back>([](view request) -> task<view> { co_return request; });
    server_.handle<fetch>([](rpc::nothing, rpc::server_call& call) -> task<std::uint64_t> {
      const local_mr read = co_await call.fetch_source(source_bytes);
      co_return read.size_bytes();
    });
    server_.handle<lose>([](rpc::nothing, rpc::server_call& call) -> task<rpc::nothing> {
      abort_of(call.connection());
      co_return {};
    });
    server_.handle<stay>([this](rpc::nothing) -> task<rpc::nothing> {
      co_await never_.wait();
      co_return {};
    });
  }
  ~workplace() {
    serving_.request_stop();
    static_cast<void>(rt_.run(as_result(serving_.join())));
  }
  workplace(const workplace&) = delete;
  workplace& operator=(const workplace&) = delete;

  /// Makes, uses and ends so many connections; `kept` of them end with this place.
  void live(std::uint64_t connections, std::uint64_t kept = 0) {
    rt_.run(live_all(connections, kept));
  }
  /// Waits until nothing is left that ends by itself. The kernel frees some memory a little later.
  void settle() {
    rt_.run(test::until(rt_.executor(), [this] { return server_.counters().connections == 0; }));
    rt_.run(rt_.executor().sleep_for(300ms));
  }

  [[nodiscard]] std::size_t completion_queues() const noexcept {
    return rt_.completion_queue_count();
  }

  std::uint64_t calls = 0, leases = 0, odd = 0;

 private:
  static constexpr unsigned workers = 8;
  static constexpr size_t source_bytes = 5000;

  static connection_options terms() {
    connection_options o = test::never_not_ready();
    o.agent.lending = {.bytes_max = size_t{1} << 20};
    return o;
  }
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  task<> live_all(std::uint64_t connections, std::uint64_t kept) {
    scope all{rt_.executor()};
    std::uint64_t left = connections;
    const auto work = [](workplace& self, std::uint64_t& rest) -> task<> {
      while (rest > 0) {
        --rest;
        co_await self.live_once();
      }
    };
    for (unsigned n = 0; n < workers; ++n) all.spawn(work(*this, left));
    co_await all.join();
    for (std::uint64_t n = 0; n < kept; ++n) kept_.emplace_back(co_await join());
  }

  task<connection> join() {
    auto [there, here] =
        co_await when_all(rt_.connect(acceptor_.local_endpoint(), terms()), acceptor_.accept());
    serving_.spawn(serve(std::move(here)));
    co_return std::move(there);
  }
  task<> serve(connection conn) {
    static_cast<void>(co_await as_result(server_.serve(std::move(conn))));
  }

  task<> live_once() {
    if (below(16) == 0) co_await fail_to_connect();
    rpc::client client{co_await join()};
    for (std::uint64_t n = below(3) + 1; n > 0; --n) co_await call(client);
    co_await borrow(*client.connection());
    switch (below(6)) {
      case 0: co_await client.close(); break;
      case 1: break;
      case 2: abort_of(*client.connection()); break;
      case 3: static_cast<void>(co_await as_result(client.call<lose>())); break;
      case 4: static_cast<void>(co_await as_result(with_timeout(client.call<stay>(), 1ms))); break;
      default: {
        const remote_mr held = co_await client.connection()->request_remote_mr(64);
        ++leases;
        client = {};
      }
    }
  }

  task<> call(rpc::client& client) {
    ++calls;
    if (below(4) == 0) {
      const local_mr source = rt_.memory().allocate_zeroed(source_bytes);
      const std::uint64_t read = co_await client.call<fetch>({}, {.source = source.slice()});
      if (read != source_bytes) ++odd;
      ++leases;
    } else {
      const std::vector<std::byte> bytes(below(8) == 0 ? 100'000 : below(200));
      const auto back = co_await client.call<echo_back>(bytes);
      if (back->size() != bytes.size()) ++odd;
    }
  }

  task<> borrow(connection& conn) {
    remote_mr memory = co_await conn.request_remote_mr(64);
    ++leases;
    const local_mr from = rt_.memory().allocate_zeroed(64);
    co_await conn.write(from.slice(), memory.slice());
    if (below(2) == 0) co_await conn.send_remote_mr(std::move(memory));
  }

  /// Connections that are not served leave nothing, either.
  task<> fail_to_connect() {
    switch (below(3)) {
      case 0: {  // Stopped in the middle, or never accepted.
        const listener deaf = rt_.listen({}, {}, terms());
        const duration soon = std::chrono::microseconds{below(2000)};
        const auto outcome =
            co_await as_result(with_timeout(rt_.connect(deaf.local_endpoint(), terms()), soon));
        if (outcome.has_failure() && outcome.failure().code != errc::timed_out) ++odd;
        break;
      }
      case 1: {  // The client sends nothing, and goes.
        const auto address = socket_address::loopback(acceptor_.local_endpoint().port);
        static_cast<void>(co_await stream_socket::connect(rt_.executor(), address));
        break;
      }
      default: {  // No server is there.
        listener gone = rt_.listen();
        const endpoint nowhere = gone.local_endpoint();
        gone.close();
        connection_options o = terms();
        o.connect_timeout = 1ms;
        const auto outcome = co_await as_result(rt_.connect(nowhere, o));
        if (outcome.has_value()) ++odd;
      }
    }
  }

  runtime rt_{test::on_test_device()};
  event never_{rt_.executor()};
  std::mt19937_64 random_;
  listener acceptor_{rt_.listen({}, {}, terms())};
  rpc::server server_;
  scope serving_{rt_.executor()};
  std::vector<rpc::client> kept_;
};

struct snapshot {
  std::size_t completion_queues;
  test::machine_counts machine = test::counts_of_machine();
  test::process_counts process = test::counts_of_process();
};

/// Prints a line, and checks it.
void compare(const char* what, std::uint64_t before, std::uint64_t after, std::uint64_t allowed) {
  std::cout << "  " << what << ": " << before << ", then " << after << "; may grow by " << allowed
            << "\n";
  INFO(what);
  CHECK(after <= before + allowed);
}

/// One thing that each connection left would be four times the allowance. The work of other
/// programs is less than the allowance.
void compare(const snapshot& before, const snapshot& after, std::uint64_t made,
             bool has_own_network) {
  constexpr std::uint64_t mib = std::uint64_t{1} << 20;
  compare("sockets", before.machine.sockets, after.machine.sockets,
          has_own_network ? 64 : made / 4);
  compare("files of the machine", before.machine.files, after.machine.files, made / 4 + 1024);
  compare("slab bytes", before.machine.slab_bytes, after.machine.slab_bytes,
          made * 2048 + 64 * mib);
  // A completion queue, which has one, is made when more connections than ever are there at once.
  compare("descriptors", before.process.descriptors, after.process.descriptors,
          after.completion_queues - before.completion_queues);
  compare("threads", before.process.threads, after.process.threads, 0);
  compare("mappings", before.process.mappings, after.process.mappings, 64);
  compare("address bytes", before.process.address_bytes, after.process.address_bytes,
          made * 256 + 128 * mib);
  compare("resident bytes", before.process.resident_bytes, after.process.resident_bytes,
          made * 128 + 24 * mib);
}

}  // namespace

TEST_CASE("connections, calls, leases and runtimes that have ended leave nothing behind",
          "[.soak-leftovers][rpc][device]") {
  const std::uint64_t seed = test::soak::seed();
  const std::uint64_t count = test::soak::count(100'000);
  constexpr std::uint64_t batch = 60;
  constexpr std::uint64_t briefly = 4;  // connections of a batch on a runtime of their own
  const bool has_own_network = enter_own_network();
  std::uint64_t made = 0, runtimes = 1, calls = 0, leases = 0, odd = 0;
  workplace lasting{seed};
  const auto live_until = [&](std::uint64_t target) {
    while (made < target) {
      lasting.live(batch - briefly);
      workplace brief{seed + ++runtimes};
      brief.live(briefly - 2, 2);
      made += batch;
      calls += brief.calls;
      leases += brief.leases;
      odd += brief.odd;
    }
    lasting.settle();
    return snapshot{.completion_queues = lasting.completion_queues()};
  };
  const snapshot warm = live_until(count / 4);
  const std::uint64_t before = made;
  const snapshot after = live_until(count);
  std::cout << made << " connections, " << calls + lasting.calls << " calls, "
            << leases + lasting.leases << " leases, " << runtimes << " runtimes; of the last "
            << made - before << " connections:\n";
  compare(warm, after, made - before, has_own_network);
  CHECK(odd + lasting.odd == 0);
}
