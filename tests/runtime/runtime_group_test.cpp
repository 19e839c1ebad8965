#include <cordma/runtime/runtime_group.hpp>

#include "support/leaks.hpp"
#include "support/runtime_group.hpp"
#include "support/verbs_faults.hpp"

#include <cordma/coro/event.hpp>

#include <catch2/catch.hpp>

#include <array>
#include <atomic>
#include <csignal>
#include <latch>
#include <set>
#include <thread>

using namespace cordma;
using namespace std::chrono_literals;
using test::group_of;

namespace {

task<> until_stopped() {
  event never;
  co_await never.wait();
}

task<> wait_on_each(runtime&, unsigned) { return until_stopped(); }

task<> do_nothing(runtime&, unsigned) { co_return; }

}  // namespace

TEST_CASE("each thread of a group has a runtime of its own", "[runtime][device]") {
  constexpr unsigned count = 3;
  runtime_group group{group_of(count)};
  std::array<runtime*, count> runtimes{};
  std::array<std::thread::id, count> threads{};
  const auto note = [&](runtime& rt, unsigned index) -> task<> {
    runtimes[index] = &rt;
    threads[index] = std::this_thread::get_id();
    co_return;
  };
  group.run(note);
  CHECK(std::set(runtimes.begin(), runtimes.end()).size() == count);
  CHECK(std::set(threads.begin(), threads.end()).size() == count);
  CHECK(std::count(threads.begin(), threads.end(), std::this_thread::get_id()) == 0);
  REQUIRE(group.size() == count);
  for (unsigned i = 0; i < count; ++i) CHECK(&group[i] == runtimes[i]);
  const std::array<std::thread::id, count> before = threads;
  group.run(note);
  CHECK(threads == before);
}

TEST_CASE("each thread's runtime is made from the options of its index", "[runtime][device]") {
  std::vector<unsigned> asked;
  const auto options = [&](unsigned index) {
    asked.push_back(index);
    runtime_options o;
    o.memory.limit_bytes = std::size_t{4 + 2 * index} << 20;
    return test::on_test_device(std::move(o));
  };
  runtime_group group{{.each = options, .threads = 3}};
  CHECK(asked == std::vector<unsigned>{0, 1, 2});
  for (unsigned i = 0; i < group.size(); ++i) {
    CHECK(group[i].memory().options().limit_bytes == std::size_t{4 + 2 * i} << 20);
  }
}

TEST_CASE("a group has a thread for each CPU unless told otherwise", "[runtime][device]") {
  runtime_group_options options = group_of(0);
  std::vector<unsigned> expected = runtime_group::allowed_cpus();
  SECTION("that it may use") {}
  SECTION("that it is told to pin to") {
    expected.resize(1);
    options.pin = expected;
  }
  const runtime_group group{options};
  CHECK(group.size() == expected.size());
}

TEST_CASE("a thread that is pinned sees its CPU alone", "[runtime][device]") {
  runtime_group_options options = group_of(0);
  options.pin = runtime_group::allowed_cpus();
  const std::vector<unsigned>& cpus = options.pin;
  runtime_group group{options};
  REQUIRE(group.size() == cpus.size());
  std::vector<std::vector<unsigned>> seen(cpus.size());
  const auto inspect = [&](runtime&, unsigned index) -> task<> {
    seen[index] = runtime_group::allowed_cpus();
    co_return;
  };
  group.run(inspect);
  for (std::size_t i = 0; i < cpus.size(); ++i) CHECK(seen[i] == std::vector<unsigned>{cpus[i]});
}

TEST_CASE("options of a group that cannot be are refused, the values named", "[runtime][N9]") {
  runtime_group_options options;
  std::string said;
  SECTION("a CPU that may not be used") {
    options.pin = runtime_group::allowed_cpus();
    options.pin.push_back(options.pin.back() + 1);
    said = "CPU " + std::to_string(options.pin.back()) + " is none of " +
           std::to_string(options.pin.front());
  }
  SECTION("fewer CPUs than threads") {
    options.pin.push_back(runtime_group::allowed_cpus().front());
    options.threads = 3;
    said = "pin names 1 CPUs for 3 threads";
  }
  SECTION("too many threads") {
    options.threads = runtime_group_options::threads_limit + 1;
    said = "threads 1025 is not between 1 and 1024";
  }
  CHECK_THROWS_WITH(runtime_group{options}, Catch::Contains(said));
}

TEST_CASE("a group whose k-th thread cannot make its runtime leaves nothing behind",
          "[runtime][device][C5]") {
  const auto make = [] { const runtime_group group{group_of(3)}; };
  make();  // Objects that a process makes once are there now.
  const std::string before = test::holdings();
  verbs_faults::fail_call(0, 0);
  make();
  const unsigned steps = verbs_faults::calls_made();
  REQUIRE(steps >= 12);  // Device, protection domain, channel, queue of each.
  for (unsigned k = 1; k <= steps; ++k) {
    verbs_faults::fail_call(k, ENOMEM);
    CHECK_THROWS_AS(make(), error);
    INFO("call " << k << ": " << verbs_faults::failed_call());
    CHECK(test::holdings() == before);
  }
  verbs_faults::fail_call(0, 0);
}

TEST_CASE("a device that is not there is the constructor's error, whichever thread's it is",
          "[runtime][device]") {
  const auto options = [](unsigned index) {
    runtime_options o = test::on_test_device();
    if (index == 1) o.device = "nonesuch0";
    return o;
  };
  CHECK_THROWS_WITH((runtime_group{{.each = options, .threads = 3}}), Catch::Contains("nonesuch0"));
}

TEST_CASE("a body that throws stops the others, and comes out when they have ended",
          "[runtime][device]") {
  runtime_group group{group_of(3)};
  std::atomic<unsigned> stopped = 0;
  const auto body = [&](runtime&, unsigned index) -> task<> {
    if (index == 1) throw error{{.code = errc::refused, .call = "body"}};
    const auto outcome = co_await as_result(until_stopped());
    stopped += outcome.is_cancelled() ? 1 : 0;
    throw error{{.code = errc::closed, .call = "because of the stop"}};
  };
  CHECK_THROWS_WITH(group.run(body), Catch::Contains("body"));
  CHECK(stopped == 2);
  group.wait();
  group.run(wait_on_each);  // Stopped for good.
}

TEST_CASE("stop from another thread ends what runs on every thread", "[runtime][device]") {
  runtime_group group{group_of(3)};
  std::latch begun{3};
  std::atomic<int> stopped = 0;
  const auto body = [&](runtime&, unsigned) -> task<> {
    begun.count_down();
    const auto outcome = co_await as_result(until_stopped());
    stopped += outcome.is_cancelled() ? 1 : 0;
  };
  std::thread other{[&] {
    begun.wait();
    group.stop();
    group.stop();
  }};
  group.run(body);
  CHECK(stopped == 3);
  group.wait();
  other.join();
}

TEST_CASE("a stop that comes before the run is not lost", "[runtime][device]") {
  runtime_group group{group_of(2)};
  group.stop();
  SECTION("at once") {}
  SECTION("when all has come to rest") { group.wait(); }
  std::atomic<int> stopped = 0;
  const auto body = [&](runtime&, unsigned) -> task<> {
    const auto outcome = co_await as_result(until_stopped());
    stopped += outcome.is_cancelled() ? 1 : 0;
  };
  group.run(body);
  CHECK(stopped == 2);
}

TEST_CASE("a body of the group can stop it, and so can a signal's handler", "[runtime][device]") {
  static runtime_group* stopped_by_signal = nullptr;
  const bool by_signal = GENERATE(false, true);
  runtime_group group{group_of(2)};
  stopped_by_signal = &group;
  std::atomic<int> stopped = 0;
  const auto before = std::signal(SIGUSR1, [](int) { stopped_by_signal->stop(); });
  const auto body = [&](runtime&, unsigned index) -> task<> {
    if (index == 0) by_signal ? static_cast<void>(std::raise(SIGUSR1)) : group.stop();
    const auto outcome = co_await as_result(until_stopped());
    stopped += outcome.is_cancelled() ? 1 : 0;
  };
  group.run(body);
  CHECK(stopped == 2);
  std::signal(SIGUSR1, before);
}

TEST_CASE("threads of a group reach each other by post", "[runtime][device]") {
  runtime_group group{group_of(2)};
  std::array<event, 2> told;
  std::atomic<int> reached = 0;
  const auto body = [&](runtime&, unsigned index) -> task<> {
    event& others = told[1 - index];
    group[1 - index].executor().post([&others]() noexcept { others.set(); });
    co_await told[index].wait();
    ++reached;
  };
  group.run(body);
  CHECK(reached == 2);
}

TEST_CASE("connections between threads of a group work, and a stop ends their waits",
          "[runtime][device]") {
  runtime_group group{group_of(2)};
  endpoint where;
  std::latch has_acceptor{1};
  std::array<std::size_t, 2> moved{};
  std::atomic<int> ends_that_moved{0};
  const auto body = [&](runtime& rt, unsigned index) -> task<> {
    connection conn;
    if (index == 0) {
      listener mine = rt.listen();
      where = mine.local_endpoint();
      has_acceptor.count_down();
      conn = co_await mine.accept();
    } else {
      has_acceptor.wait();
      conn = co_await rt.connect(where);
    }
    local_mr memory = rt.memory().allocate_zeroed(16);
    const auto [m, sent] =
        co_await when_all(conn.recv(memory.slice(0, 8)), conn.send(memory.slice(8, 8)));
    moved[index] = m.size_bytes + sent;
    if (++ends_that_moved == 2) group.stop();
    static_cast<void>(co_await conn.next_message());
  };
  // The runtime whose connection ends first is dropped first: the other may see that before the
  // stop.
  try {
    group.run(body);
  } catch (const error& e) {
    CHECK(e.code() == make_error_code(errc::disconnected));
  }
  CHECK(moved == std::array<std::size_t, 2>{16, 16});
}

TEST_CASE("a group can be left alone, or run nothing", "[runtime][device][C3]") {
  const std::string before = test::holdings();
  {
    runtime_group group{group_of(2)};
    group.run(do_nothing);
  }
  {
    const runtime_group group{group_of(2)};
  }
  CHECK(test::holdings() == before);
}
