#include "../../lib/io/uring_reactor.hpp"

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

TEST_CASE("each time that the kernel is entered is counted, and looking around is not", "[io]") {
  executor exec;
  settle(exec);
  const std::uint64_t before = exec.reactor().enters();
  for (int i = 0; i < 100; ++i) exec.reactor().poll();
  CHECK(exec.reactor().enters() == before);
  wires w;
  const counting_watch watch{exec, w.near.get()};
  exec.reactor().poll();
  CHECK(exec.reactor().enters() == before + 1);
  exec.reactor().wake();
  exec.reactor().wait();
  CHECK(exec.reactor().enters() == before + 2);
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
