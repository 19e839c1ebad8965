#include "open_network.hpp"
#include "raw_side.hpp"
#include "sim/seed_run.hpp"

#include <cordma/connection/listener.hpp>
#include <cordma/coro/sleep.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/sim.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <new>
#include <string_view>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using sim::detail::decision_kind;
using sim::detail::plan;
using sim::detail::seed_run;

namespace {

sim::faults all_steps() {
  sim::faults wanted;
  wanted.failed_allocations = 1;
  return wanted;
}

[[gnu::noinline]] std::vector<char> allocates_a_kibibyte() { return std::vector<char>(1024); }

unsigned failed = 0;

/// Allocates in each of a hundred steps, and counts what fails.
task<> allocate_often(runtime&) {
  for (unsigned n = 0; n < 100; ++n) {
    try {
      static_cast<void>(allocates_a_kibibyte());
    } catch (const std::bad_alloc&) {
      ++failed;
    }
    co_await sleep_for(1ms);
  }
}

void play_allocations(sim::world& w) {
  failed = 0;
  w.add_host("a").start(&allocate_often);
  w.run();
}

const sim::scenario allocating{"allocating", "", &play_allocations};

bool names(const seed_run& run, std::string_view caller) {
  return std::ranges::any_of(run.trace, [&](const auto& one) {
    const std::string_view text{one.what.text};
    return text.starts_with("fault: no memory in ") && text.find(caller) != text.npos;
  });
}

/// One end of a connection whose socket fails. Ends in any case.
task<> converse(runtime& rt, endpoint at, bool listens) {
  try {
    std::optional<listener> listening;
    if (listens) listening = rt.listen(at);
    connection conn;
    if (listens) {
      conn = co_await with_timeout(listening->accept(), 1s);
      co_await with_timeout(conn.ended(), 1s);
    } else {
      conn = co_await rt.connect(at);
    }
  } catch (const error&) {
  } catch (const std::bad_alloc&) {
  }
}

/// Asks a host for memory that it does not lend, or is that host. Ends in any case.
task<> ask_for_memory(runtime& rt, endpoint at, bool lends) {
  try {
    if (lends) {
      connection_changes changes;
      changes.agent = agent_options{};
      changes.agent->lending.bytes_max = 64;
      listener listening = rt.listen(at, {}, changes);
      connection conn = co_await with_timeout(listening.accept(), 1s);
      co_await with_timeout(conn.ended(), 1s);
    } else {
      connection conn = co_await rt.connect(at);
      for (unsigned n = 0; n < 20; ++n)
        static_cast<void>(co_await as_result(with_timeout(conn.request_remote_mr(65), 1s)));
    }
  } catch (const error&) {
  } catch (const std::bad_alloc&) {
  }
}

/// Drops a listener in the middle of a handshake, or is the client of that. Ends in any case.
task<> leave_a_handshake(runtime& rt, endpoint at, bool listens) {
  try {
    if (listens) {
      const listener listening = rt.listen(at);
      co_await sleep_for(2ms);
    } else {
      static_cast<void>(co_await rt.connect(at));
    }
  } catch (const error&) {
  } catch (const std::bad_alloc&) {
  }
}

/// Plays a program on each of two hosts, often, and lets its steps have no memory now and then.
void play_often(task<> (*program)(runtime&, endpoint, bool), double failed_sockets) {
  sim::faults wanted;
  wanted.failed_allocations = 0.1;
  wanted.failed_sockets = failed_sockets;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    INFO("seed " << seed);
    sim::world w{seed, wanted};
    sim::host& a = w.add_host("a");
    sim::host& b = w.add_host("b");
    const endpoint at = a.endpoint(test::sim_port);
    const auto start = [=](sim::host& host, bool is_server) {
      host.start([=](runtime& rt) { return program(rt, at, is_server); }, test::open_network);
    };
    start(a, true);
    w.after(1ms, [&] { start(b, false); });
    CHECK_NOTHROW(w.run(60s));
  }
}

}  // namespace

#ifdef __clang__
// A sanitizer of clang keeps its operator new.
#define CORDMA_NEEDS_NEW "[sim][.]"
#else
#define CORDMA_NEEDS_NEW "[sim]"
#endif

TEST_CASE("allocations of a program fail by chance, and the events name who has no memory",
          CORDMA_NEEDS_NEW) {
  const seed_run run{
      {.what = &allocating, .seed = 1, .wanted = all_steps(), .keeps_all_events = true}};
  CHECK(run.found == "");
  CHECK(failed >= 2);
  CHECK(failed < 50);
  CHECK(run.faults_happened.size() >= failed);
  CHECK(names(run, "allocates_a_kibibyte()"));
}

TEST_CASE("a plan takes back that an allocation fails", CORDMA_NEEDS_NEW) {
  const seed_run all{{.what = &allocating, .seed = 1, .wanted = all_steps()}};
  const unsigned failed_before = failed;
  seed_run::request one{.what = &allocating, .seed = 1, .wanted = all_steps()};
  one.kept = plan::parse("fault=none");
  CHECK(seed_run{one}.faults_happened.empty());
  CHECK(failed == 0);
  one.kept = plan::parse("fault=" + std::to_string(all.faults_happened.front()));
  CHECK(seed_run{one}.faults_happened.size() == 1);
  CHECK(failed == 1);
  one.kept = {};
  CHECK(seed_run{one}.hash == all.hash);
  CHECK(failed == failed_before);
}

TEST_CASE("no allocation fails in a world that is healed", "[sim]") {
  sim::world w{1, all_steps()};
  failed = 0;
  w.add_host("a").start(&allocate_often);
  w.heal();
  w.run();
  CHECK(failed == 0);
}

TEST_CASE("allocations of a device and of the world never fail", "[sim]") {
  sim::world w{1, all_steps()};
  unsigned made = 0;
  w.add_host("a").start([&](runtime&) -> task<> {
    for (unsigned n = 0; n < 20; ++n) {
      const test::raw_side side;
      ++made;
      co_await sleep_for(1ms);
    }
  });
  CHECK_NOTHROW(w.run());
  CHECK(made == 20);
}

TEST_CASE("a socket that fails when there is no memory to say so ends its connection",
          CORDMA_NEEDS_NEW) {
  play_often(&converse, 0.1);
}

TEST_CASE("a request for memory is refused when there is no memory to say why", CORDMA_NEEDS_NEW) {
  play_often(&ask_for_memory, 0);
}

TEST_CASE("a listener that is dropped without memory to wait for its handshakes leaves nothing",
          CORDMA_NEEDS_NEW) {
  play_often(&leave_a_handshake, 0);
}
