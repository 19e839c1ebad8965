#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include "support/kernel_counts.hpp"
#include "wires.hpp"

#include <fcntl.h>
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;

TEST_CASE("a closed descriptor is closed at once when its watch has gone", "[io]") {
  executor exec;
  wires w;
  {
    counting_watch watch{exec, w.near.get()};
    settle(exec);
  }
  w.near.reset();
  // The executor does not run meanwhile.
  char byte;
  CHECK(::read(w.far.get(), &byte, 1) == 0);
}

TEST_CASE("a watch outlives its executor without reaching for it", "[io]") {
  wires w;
  std::optional<counting_watch> watch;
  {
    executor exec;
    watch.emplace(exec, w.near.get());
    settle(exec);
  }
  CHECK_FALSE(watch->is_watching());
}

TEST_CASE("a bad descriptor fires once, and its watch says that it watches no longer", "[io]") {
  executor exec;
  counting_watch bad{exec, 999'999};
  settle(exec);
  CHECK(bad.fired_count == 1);
  CHECK_FALSE(bad.is_watching());
  exec.run(readable(exec, 999'999));
  const unique_fd file{::open("/proc/self/exe", O_RDONLY | O_CLOEXEC)};
  exec.run(readable(exec, file.get()));
}

TEST_CASE("watches beyond the size of the ring are all told to the kernel", "[io]") {
  executor exec{{.ring_entries = 4}};
  wires w;
  std::vector<std::unique_ptr<counting_watch>> many;
  for (int i = 0; i < 100; ++i) {
    many.push_back(std::make_unique<counting_watch>(exec, w.near.get()));
  }
  settle(exec);
  w.say();
  settle(exec);
  // Watches may fire more than once: the completion queue overflowed, and the kernel had to be told
  // again.
  CHECK(std::ranges::all_of(many, [](const auto& each) { return each->fired_count > 0; }));
  many.clear();
  w.say();
  settle(exec);
  exec.run(readable(exec, w.near.get()));
}

TEST_CASE("a close closes whatever was on its way when the watch went", "[io]") {
  executor exec{{.ring_entries = 4}};
  std::array<wires, 64> all;
  std::vector<std::unique_ptr<counting_watch>> watches;
  for (const wires& w : all) {
    watches.push_back(std::make_unique<counting_watch>(exec, w.near.get()));
  }
  settle(exec);
  for (std::size_t left = all.size(); left-- > 0;) {
    // All remaining watches have an event: more than the kernel works off when it is entered once.
    for (std::size_t n = 0; n <= left; ++n) all[n].say();
    watches.pop_back();
    all[left].near.reset();
    // The executor does not run meanwhile. What was not read ends the other side with an error.
    char byte;
    CHECK(::read(all[left].far.get(), &byte, 1) == -1);
    CHECK(errno == ECONNRESET);
    if (left % 8 == 0) settle(exec);
  }
}

TEST_CASE("watches that end while an event is pending leave nothing in the kernel", "[io]") {
  executor exec;
  constexpr std::size_t rounds = 2000;
  settle(exec);
  const std::uint64_t before = counts_of_machine().sockets;
  for (std::size_t n = 0; n < rounds; ++n) {
    const wires w;
    const counting_watch watch{exec, w.near.get()};
    exec.reactor().poll();
    w.say();
  }
  // Other programs open and close sockets meanwhile.
  CHECK(counts_of_machine().sockets < before + rounds / 4);
}

TEST_CASE("watches of one descriptor fire for their own events", "[io]") {
  struct of_kind : fd_watch {
    of_kind(executor& exec, int fd, fd_events events) : fd_watch{exec, fd, events, &count} {}
    static void count(fd_watch& self) noexcept { ++static_cast<of_kind&>(self).fired_count; }
    int fired_count = 0;
  };
  executor exec;
  wires w;
  of_kind reads{exec, w.near.get(), fd_events::readable};
  settle(exec);
  of_kind writes{exec, w.near.get(), fd_events::writable};
  of_kind ends{exec, w.near.get(), fd_events::hang_up};
  settle(exec);
  CHECK(reads.fired_count == 0);
  CHECK(writes.fired_count > 0);
  CHECK(ends.fired_count == 0);
  w.say();
  settle(exec);
  CHECK(reads.fired_count > 0);
  CHECK(ends.fired_count == 0);
  w.far.reset();
  settle(exec);
  CHECK(ends.fired_count > 0);
}

TEST_CASE("waits for one descriptor end each on its own, beside a watch of it", "[io]") {
  executor exec;
  wires w;
  const bool is_watched = GENERATE(false, true);
  std::optional<counting_watch> watch;
  if (is_watched) watch.emplace(exec, w.near.get());
  exec.post([&] { w.say(); });
  const auto both = [](executor& e, const wires& wire) -> task<std::size_t> {
    co_await when_all(readable(e, wire.near.get()), writable(e, wire.near.get()),
                      readable(e, wire.near.get()));
    co_return wire.read_all();
  };
  for (int n = 0; n < 3; ++n) {
    CHECK(exec.run(both(exec, w)) == 1);
    w.say();
  }
  settle(exec);
  if (is_watched) CHECK(watch->fired_count >= 1);
}

TEST_CASE("the number of a closed descriptor is watched again under another file", "[io]") {
  executor exec;
  for (int n = 0; n < 10; ++n) {
    wires w;
    // The file lives on in the copy, and so does what the kernel may remember of it.
    const unique_fd copy{::dup(w.near.get())};
    w.say();
    exec.run(readable(exec, w.near.get()));
    const int number = w.near.get();
    w.near.reset();
    const wires other;
    REQUIRE(::dup2(other.near.get(), number) == number);
    const unique_fd reused{number};
    CHECK(exec.run(as_result(with_timeout(readable(exec, number), 1ms))).has_failure());
    other.say();
    exec.run(readable(exec, number));
  }
}

TEST_CASE("a timer fires on time though the executor never blocks", "[io]") {
  executor exec;
  struct restless final : poller {
    std::size_t poll() noexcept override { return 0; }
    bool prepare_wait() noexcept override { return false; }
  } p;
  exec.add_restless(p);
  exec.run(exec.sleep_for(1ms));
  CHECK(exec.counters().waits == 0);
}
