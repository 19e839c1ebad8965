#include "perf/meter.hpp"

#include <catch2/catch.hpp>

#include <atomic>
#include <vector>

using namespace perf;
using namespace std::chrono_literals;
using std::chrono::nanoseconds;

namespace {

/// A clock that stands still unless a test moves it.
struct test_clock {
  static inline clock::time_point time{1h};
  static clock::time_point now() noexcept { return time; }
};
using tested = basic_meter<test_clock>;

/// Does what a worker of a connection does, with operations that take what `length_of` says.
template <class LengthOf>
void work(tested& m, LengthOf length_of) {
  clock::time_point start = test_clock::now();
  for (std::uint64_t i = 0; m.takes_another(start); ++i) {
    while (m.is_early(start)) test_clock::time = m.next_wake(start);
    if (!m.begins(start)) break;
    test_clock::time += length_of(i);
    start = m.record(start);
  }
}

/// Makes a meter of 1000 operations a second.
tested::limits open_loop(nanoseconds longest) {
  return {.longest = longest, .pace = pace_options{.per_second = 1000}};
}

}  // namespace

TEST_CASE("an open loop that keeps up begins each operation when it is due", "[tools]") {
  tested m;
  m.begin(open_loop(100ms));
  const clock::time_point began = test_clock::now();
  work(m, [](std::uint64_t) { return 100us; });
  CHECK(m.latencies().count() == 100);
  CHECK(m.latencies().max() == 100us);
  CHECK(m.latencies().mean() == 100us);
  CHECK(m.lateness().max() == 0ns);
  CHECK(m.missed() == 0);
  CHECK(m.now() - began == 99ms + 100us);
}

TEST_CASE("a stall counts for each operation that was due meanwhile", "[tools]") {
  tested m;
  m.begin(open_loop(100ms));
  work(m, [](std::uint64_t i) -> nanoseconds { return i == 20 ? 10ms : 0ms; });
  // Operation 20 takes 10 ms, and the next nine are due 9, 8 ... 1 ms before it ends.
  CHECK(m.latencies().count() == 100);
  CHECK(m.latencies().max() == 10ms);
  CHECK(m.latencies().mean() == nanoseconds{55ms} / 100);
  CHECK(m.lateness().max() == 9ms);
  CHECK(m.lateness().mean() == nanoseconds{45ms} / 100);
  CHECK(m.missed() == 0);
}

TEST_CASE("a closed loop counts the same stall once", "[tools]") {
  tested m;
  m.begin(100);
  work(m, [](std::uint64_t i) -> nanoseconds { return i == 20 ? 10ms : 0ms; });
  CHECK(m.latencies().count() == 100);
  CHECK(m.latencies().mean() == nanoseconds{10ms} / 100);
  CHECK(m.lateness().count() == 0);
  CHECK(m.missed() == 0);
}

TEST_CASE("operations that an overloaded open loop never began are missed", "[tools]") {
  tested m;
  m.begin(open_loop(100ms));
  work(m, [](std::uint64_t) { return 10ms; });
  CHECK(m.latencies().count() == 10);
  CHECK(m.missed() == 90);
  // The last one was due at 9 ms, began at 90 and ended at 100.
  CHECK(m.latencies().max() == 91ms);
  CHECK(m.lateness().max() == 81ms);
}

TEST_CASE("an open loop by number of operations misses none", "[tools]") {
  tested m;
  m.begin({.operations = 7, .pace = pace_options{.per_second = 1000}});
  work(m, [](std::uint64_t) { return 10ms; });
  CHECK(m.latencies().count() == 7);
  CHECK(m.missed() == 0);
}

TEST_CASE("a stop ends an open loop, also one that waits for a time far ahead", "[tools]") {
  std::atomic<bool> is_stopped{false};
  tested m;
  m.begin({.pace = pace_options{.per_second = 0.1}, .is_stopped = &is_stopped});
  const clock::time_point began = test_clock::now();
  clock::time_point first = began, second = began;
  REQUIRE(m.takes_another(first));
  CHECK(m.begins(first));
  CHECK_FALSE(m.is_idle());
  m.record(first);
  CHECK(m.is_idle());
  REQUIRE(m.takes_another(second));
  CHECK(second == began + 10s);
  CHECK(m.is_early(second));
  CHECK(m.next_wake(second) < began + 1s);  // To see a stop soon.
  is_stopped = true;
  CHECK_FALSE(m.is_early(second));
  CHECK_FALSE(m.begins(second));
  CHECK_FALSE(m.takes_another(second));
  CHECK(m.missed() == 0);
  CHECK(m.latencies().count() == 1);
}

TEST_CASE("a stop ends a closed loop", "[tools]") {
  std::atomic<bool> is_stopped{false};
  tested m;
  m.begin({.is_stopped = &is_stopped});
  work(m, [&](std::uint64_t i) -> nanoseconds {
    is_stopped = i == 4;
    return 1ms;
  });
  CHECK(m.latencies().count() == 5);
}
