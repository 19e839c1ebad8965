#include "sim/traps.hpp"

#include <cordma/coro/sleep.hpp>
#include <cordma/runtime/runtime_group.hpp>
#include <cordma/sim.hpp>

#include <netdb.h>
#include <sys/random.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <array>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <random>
#include <string>
#include <system_error>
#include <thread>

using namespace cordma;
using namespace std::chrono_literals;
using Catch::Contains;

namespace {

// The callers that findings name.
[[gnu::noinline]] std::chrono::steady_clock::time_point asks_the_steady_clock() {
  return std::chrono::steady_clock::now();
}
[[gnu::noinline]] void asks_the_system_clock() {
  static_cast<void>(std::chrono::system_clock::now());
}
[[gnu::noinline]] std::int64_t asks_the_time_of_day() {
  timeval now{};
  CHECK(::gettimeofday(&now, nullptr) == 0);
  return now.tv_sec * 1'000'000 + now.tv_usec;
}
[[gnu::noinline]] std::int64_t asks_for_the_seconds() {
  std::time_t now = 0;
  CHECK(std::time(&now) == now);
  return std::time(nullptr);
}
[[gnu::noinline]] void waits_a_moment() {
  const timespec span{.tv_sec = 3600, .tv_nsec = 0};
  static_cast<void>(::clock_nanosleep(CLOCK_MONOTONIC, 0, &span, nullptr));
}
// No test sleeps: in a step of a host these come back at once.
[[gnu::noinline]] void lets_the_thread_sleep() {
  using std::this_thread::sleep_for;
  sleep_for(1h);
}
[[gnu::noinline]] void sleeps_for_seconds() {
  constexpr auto wait = &::sleep;
  static_cast<void>(wait(3600));
}
[[gnu::noinline]] void sleeps_for_microseconds() {
  constexpr auto wait = &::usleep;
  static_cast<void>(wait(3'600'000'000));
}
[[gnu::noinline]] void starts_a_thread() {
  try {
    std::thread{[] {}}.join();
  } catch (const std::system_error&) {
    // The trap has made none.
  }
}
[[gnu::noinline]] std::uint64_t asks_for_random_bytes() {
  std::uint64_t bytes = 0;
  CHECK(::getrandom(&bytes, sizeof bytes, 0) == sizeof bytes);
  return bytes;
}
[[gnu::noinline]] std::uint64_t asks_for_entropy() {
  std::uint64_t bytes = 0;
  CHECK(::getentropy(&bytes, sizeof bytes) == 0);
  return bytes;
}
[[gnu::noinline]] std::uint64_t asks_the_random_device() { return std::random_device{}(); }
[[gnu::noinline]] void resolves_a_name() {
  addrinfo* found = nullptr;
  CHECK(::getaddrinfo("localhost", "80", nullptr, &found) == EAI_FAIL);
}

/// Returns the finding of a program on a host "a" that does this.
std::string found_of(callback<void()> act, std::uint64_t seed = 1) {
  sim::world w{seed};
  w.add_host("a").start([&](runtime&) -> task<> {
    co_await sleep_for(1ms);
    act();
  });
  try {
    w.run();
  } catch (const sim::finding& found) {
    return found.what();
  }
  return {};
}

/// Checks that a finding names a call and the function that made it.
void check_names(const std::string& found, const std::string& call, const std::string& caller) {
  CHECK_THAT(found, Catch::StartsWith("host a calls " + call + " in (anonymous namespace)::" +
                                      caller + "(): a simulated program asks its runtime"));
}

}  // namespace

/// A caller that has a name of the allocator's.
extern "C" [[gnu::noinline]] std::int64_t je_asks_the_time() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

TEST_CASE("a program that asks a clock which is not the world's is found, and its function",
          "[sim]") {
  check_names(found_of([] { asks_the_steady_clock(); }), "clock_gettime", "asks_the_steady_clock");
  check_names(found_of([] { asks_the_system_clock(); }), "clock_gettime", "asks_the_system_clock");
  std::int64_t at_us = 0, at_s = 0;
  check_names(found_of([&] { at_us = asks_the_time_of_day(); }), "gettimeofday",
              "asks_the_time_of_day");
  check_names(found_of([&] { at_s = asks_for_the_seconds(); }), "time", "asks_for_the_seconds");
  CHECK(at_us >= 1'001'000);
  CHECK(at_us < 1'002'000);
  CHECK(at_s == 1);
}

TEST_CASE("a program that lets its thread wait is found, and does not wait", "[sim]") {
  check_names(found_of([] { waits_a_moment(); }), "clock_nanosleep", "waits_a_moment");
  check_names(found_of([] { lets_the_thread_sleep(); }), "nanosleep", "lets_the_thread_sleep");
  check_names(found_of([] { sleeps_for_seconds(); }), "sleep", "sleeps_for_seconds");
  check_names(found_of([] { sleeps_for_microseconds(); }), "usleep", "sleeps_for_microseconds");
}

#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
TEST_CASE("a program that starts a thread is found, and has none", "[sim]") {
  check_names(found_of([] { starts_a_thread(); }), "pthread_create", "starts_a_thread");
}

TEST_CASE("a program that makes a runtime_group is found, and hears that it has no threads",
          "[sim]") {
  std::string why;
  const std::string found = found_of([&] {
    try {
      runtime_group_options two;
      two.threads = 2;
      const runtime_group group{two};
    } catch (const error& e) {
      why = e.what();
    }
  });
  CHECK_THAT(found, Catch::StartsWith("host a calls pthread_create in cordma::runtime_group::") &&
                        Contains("docs/simulation.md"));
  CHECK_THAT(why, Catch::StartsWith("pthread_create") && Contains("thread"));
}
#endif

TEST_CASE("a program that asks for random bytes is found, and gets those of the seed", "[sim]") {
  const auto asks = [](std::uint64_t (*ask)(), const std::string& call, const std::string& caller) {
    std::array<std::uint64_t, 3> bytes{};
    for (std::size_t n = 0; n < 3; ++n)
      check_names(found_of([&] { bytes[n] = ask(); }, n < 2 ? 1 : 2), call, caller);
    CHECK(bytes[0] == bytes[1]);
    CHECK(bytes[0] != bytes[2]);
  };
  asks(&asks_for_random_bytes, "getrandom", "asks_for_random_bytes");
  asks(&asks_for_entropy, "getentropy", "asks_for_entropy");
  asks(&asks_the_random_device, "std::random_device", "asks_the_random_device");
  CHECK(asks_the_random_device() != asks_the_random_device());
}

TEST_CASE("a program that resolves a name beside its runtime is found", "[sim]") {
  check_names(found_of([] { resolves_a_name(); }), "getaddrinfo", "resolves_a_name");
}

TEST_CASE("the allocator may ask the time, and gets the world's", "[sim]") {
  std::int64_t asked = 0;
  CHECK(found_of([&] { asked = je_asks_the_time(); }) == "");
  CHECK(asked >= 1'001'000'000);
  CHECK(asked < 1'002'000'000);
}

TEST_CASE("whatever is called between the steps of hosts is no concern of a world", "[sim]") {
  sim::world w{1};
  w.add_host("a").start([](runtime&) -> task<> { co_await sleep_for(1ms); });
  std::chrono::steady_clock::time_point inside;
  const auto before = std::chrono::steady_clock::now();
  w.after(500us, [&] { inside = asks_the_steady_clock(); });
  w.run();
  CHECK(inside >= before);
  CHECK(asks_for_the_seconds() >= 1'700'000'000);
  CHECK(asks_the_time_of_day() >= 1'700'000'000'000'000);
  CHECK(inside <= std::chrono::steady_clock::now());
}
