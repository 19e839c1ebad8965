#include <cordma/transfer/completion_queue_driver.hpp>

#include "support/allocations.hpp"
#include "support/loopback.hpp"
#include "support/soak.hpp"

#include <cordma/coro/when_all.hpp>

#include <catch2/catch.hpp>

#include <ctime>
#include <random>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::loopback;

namespace {

/// Lets a completion race with the driver: posts a message at one of its race points, chosen by
/// chance, and gives the device a random time to complete it.
struct racer {
  loopback& link;
  const local_mr& from;
  std::mt19937_64 random;
  bool wanted = false;
  std::uint64_t injected = 0;

  void maybe() {
    // At the second point, where it is armed, at the latest: there is no third.
    const completion_counters& seen = link.driver.counters();
    if (!wanted || (seen.arms == seen.events && random() % 2 == 0)) return;
    inject();
    ++injected;
    const time_point until = link.home.now() + std::chrono::microseconds{random() % 150};
    while (link.home.now() < until) {
    }
  }
  void inject() {
    wanted = false;
    static_cast<void>(link.b->post(send(from)));
  }
  static void at_race_point(void* self) { static_cast<racer*>(self)->maybe(); }
};

task<> race(loopback& link, racer& r, local_mr& to, std::uint64_t count) {
  while (r.injected < count) {
    link.a->post_recv(to);
    const completion_counters& seen = link.driver.counters();
    r.wanted = true;
    // Armed from before, it does not pass its race points again: the message comes from here.
    if (seen.arms > seen.events) r.inject();
    co_await link.a->next_message();
  }
}

std::uint64_t lost_of(std::uint64_t count, std::uint64_t seed) {
  loopback link;
  const local_mr from = link.pattern(8);
  local_mr to = link.memory(8);
  racer r{link, from, std::mt19937_64{seed}};
  link.driver.set_race_point(&racer::at_race_point, &r);
  // No timer is armed: a completion that is not seen would be waited for for ever.
  link.run(race(link, r, to, count));
  CHECK_FALSE(link.home.next_deadline().has_value());
  link.driver.set_race_point(nullptr, nullptr);
  const completion_counters& seen = link.driver.counters();
  CHECK(seen.events <= seen.arms);
  CHECK(link.driver.verbs().unacknowledged_events() == 0);
  return count - std::min(count, r.injected);
}

}  // namespace

TEST_CASE("a completion that lands around the arming is seen without a timer",
          "[transfer][device][E1]") {
  CHECK(lost_of(10'000, 1) == 0);
}

TEST_CASE("soak: completions that land around the arming", "[transfer][device][.soak-races]") {
  CHECK(lost_of(test::soak::count(1'000'000), test::soak::seed()) == 0);
}

TEST_CASE("one wake-up takes all completions, and acknowledges all events",
          "[transfer][device][E2]") {
  static constexpr std::size_t count = 60;
  loopback link;
  local_mr mr = link.memory(count * 8);
  const remote_mr_slice remote = mr.remote_slice();
  link.run(link.a->write(mr.slice(0, 8), remote.first(8)));
  link.run(link.home.sleep_for(1ms));  // Armed now.
  const completion_counters before = link.driver.counters();
  using handle = decltype(link.a->post(write(mr, remote)));
  std::vector<handle> handles;
  for (std::size_t i = 0; i < count; ++i) {
    handles.push_back(link.a->post(write(mr.slice(i * 8, 8), remote.slice(i * 8, 8))));
  }
  // The device completes them all while the executor does something else.
  const time_point until = link.home.now() + 100ms;
  while (link.home.now() < until) {
  }
  for (handle& h : handles) link.run(h);
  link.run(link.home.sleep_for(1ms));
  const completion_counters& after = link.driver.counters();
  CHECK(after.completions - before.completions == count);
  CHECK(after.wake_ups - before.wake_ups <= 2);
  CHECK(after.events - before.events <= 2);
  CHECK(link.driver.verbs().unacknowledged_events() == 0);
}

TEST_CASE("a wake-up for nothing is harmless", "[transfer][device][E3]") {
  loopback link;
  local_mr mr = link.memory(64);
  for (int i = 0; i < 50; ++i) {
    // An event of an arming that the driver knows nothing of, for an entry that is gone by then.
    REQUIRE(link.driver.verbs().arm() == 0);
    auto handle = link.a->post(write(mr.slice(0, 8), mr.remote_slice()));
    while (!handle.has_ended()) link.driver.reap();
    link.run(link.home.sleep_for(100us));
    CHECK(link.run(link.a->write(mr, mr.remote_slice())) == 64);
  }
  CHECK(link.driver.counters().events > 0);
  CHECK(link.driver.verbs().unacknowledged_events() == 0);
}

TEST_CASE("in manual mode nothing completes before it is reaped", "[transfer][device][E5]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  local_mr mr = link.memory(64);
  auto handle = link.a->post(write(mr, mr.remote_slice()));
  link.run(link.home.sleep_for(50ms));
  CHECK_FALSE(handle.has_ended());
  CHECK(link.driver.counters().polls == 0);
  while (link.driver.reap() == 0) {
  }
  CHECK(handle.has_ended());
  CHECK(link.run(handle) == 64);
  CHECK(link.driver.counters().arms == 0);
}

TEST_CASE("every mode that the executor drives completes what is awaited", "[transfer][device]") {
  const completion_mode mode =
      GENERATE(completion_mode::event, completion_mode::busy, completion_mode::adaptive);
  const duration spin_max = GENERATE(duration{0}, duration{200us}, duration{1h});
  loopback link{{.cq = {.mode = mode, .poll_batch = 3, .spin_max = spin_max}}};
  local_mr mr = link.memory(64);
  for (int i = 0; i < 50; ++i) {
    CHECK(link.run(link.a->write(mr, mr.remote_slice())) == 64);
    const auto [sent, got] = link.run(when_all(link.a->send(mr.slice(0, 8)), link.b->recv(mr)));
    CHECK(got.size_bytes == sent);
  }
  const completion_counters& seen = link.driver.counters();
  if (mode == completion_mode::busy) CHECK(seen.arms == 0);
  if (mode == completion_mode::adaptive && spin_max == 1h) CHECK(seen.arms == 0);
  if (mode == completion_mode::event) CHECK(seen.arms > 0);
  if (mode == completion_mode::adaptive && spin_max == 0s) CHECK(seen.arms > 0);
}

TEST_CASE("an idle executor burns no CPU", "[transfer][device][E8]") {
  const completion_mode mode = GENERATE(completion_mode::event, completion_mode::adaptive);
  loopback link{{.cq = {.mode = mode}}};
  local_mr mr = link.memory(64);
  link.run(link.a->write(mr, mr.remote_slice()));
  link.run(link.home.sleep_for(5ms));
  const auto cpu = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1'000'000'000 + t.tv_nsec;
  };
  const auto cpu_before = cpu();
  const std::uint64_t waits_before = link.home.counters().waits;
  const std::uint64_t turns_before = link.home.counters().turns;
  link.run(link.home.sleep_for(300ms));
  CHECK(link.home.counters().waits - waits_before <= 3);
  CHECK(link.home.counters().turns - turns_before <= 10);
  CHECK(cpu() - cpu_before < 60'000'000);
}

TEST_CASE("options out of range are refused with the number", "[transfer][device][N9]") {
  for (const unsigned batch : {0u, completion_queue_driver::poll_batch_max + 1}) {
    try {
      loopback link{{.cq = {.poll_batch = batch}}};
      FAIL("taken");
    } catch (const error& e) {
      CHECK(e.code() == errc::limit_exceeded);
      CHECK(std::string{e.what()}.find(std::to_string(batch)) != std::string::npos);
    }
  }
}

namespace {

enum class kind { send, write, write_with_imm, read, compare_swap, fetch_add, post, batch, recv };

task<> repeat(loopback& link, kind what, local_mr_slice mr, remote_mr_slice remote, int count) {
  for (int i = 0; i < count; ++i) {
    switch (what) {
      case kind::send:
        link.b->post_recv(mr.last(8));
        co_await link.a->send(mr.first(8));
        co_await link.b->next_message();
        break;
      case kind::write: co_await link.a->write(mr.first(100), remote.first(100)); break;
      case kind::write_with_imm:
        link.b->post_recv(mr.last(8));
        co_await link.a->write_with_imm(mr.first(8), remote.first(8), 1);
        co_await link.b->next_message();
        break;
      case kind::read: co_await link.a->read(mr.first(8), remote.last(8)); break;
      case kind::compare_swap: co_await link.a->compare_swap(remote.first(8), 0, 0); break;
      case kind::fetch_add: co_await link.a->fetch_add(remote.first(8), 1); break;
      case kind::post: {
        auto handle = link.a->post(write(mr.first(8), remote.first(8)));
        co_await handle;
        break;
      }
      case kind::batch:
        co_await link.a->post_all(write(mr.first(8), remote.first(8)),
                                  write(mr.first(8), remote.last(8)),
                                  read(mr.first(8), remote.last(8)));
        break;
      case kind::recv:
        static_cast<void>(link.a->post(send(mr.first(8))));
        co_await link.b->recv(mr.last(8));
        break;
    }
  }
}

}  // namespace

TEST_CASE("no operation allocates once warm", "[transfer][device]") {
  if (!support::counts_allocations()) {
    WARN("a sanitizer's malloc is not counted");
    return;
  }
  static constexpr int count = 10'000;
  static constexpr int workers =
      16;  // Side by side, which is quicker; and none waits in the kernel.
  loopback link{{.cq = {.mode = completion_mode::busy}}};
  local_mr mr = link.memory(4096);
  const auto repeat_all = [&](kind what, int times) {
    scope all{link.home};
    for (int i = 0; i < workers; ++i) {
      all.spawn(repeat(link, what, mr, mr.remote_slice(), times / workers));
    }
    link.run(all.join());
  };
  for (const kind what :
       {kind::send, kind::write, kind::write_with_imm, kind::read, kind::compare_swap,
        kind::fetch_add, kind::post, kind::batch, kind::recv}) {
    CAPTURE(int(what));
    repeat_all(what, 320);
    const std::uint64_t before = support::allocation_count();
    repeat_all(what, count);
    CHECK(support::allocation_count() - before == 0);
  }
}
