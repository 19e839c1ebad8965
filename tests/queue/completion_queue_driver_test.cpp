#include "queue/completion_queue_driver.hpp"

#include "support/aborts.hpp"
#include "support/allocations.hpp"
#include "support/loopback.hpp"
#include "support/skip.hpp"
#include "support/soak.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::loopback;

namespace {

/// Each message is exactly one completion on the queue under test: `a` receives there. The sender's
/// completions land on a queue that wakes nobody.
struct one_way {
  one_way() { link.connect(*link.a, *sender); }
  void send(const local_mr_slice& from) {
    sends.reap();
    static_cast<void>(sender->post(cordma::send(from)));
  }

  loopback link{{.connected = false}};
  completion_queue_driver sends{link.executor, link.ctx, {.mode = completion_mode::manual}};
  std::unique_ptr<queue_pair> sender =
      std::make_unique<queue_pair>(sends, link.pd, link.capabilities, link.port.message_max_bytes);
};

/// Lets a completion race with the driver. Sends a message before or after an arming, chosen by
/// chance, and gives the device a random time to complete it. Arms in place of the provider.
struct racer {
  racer(one_way& w, local_mr& bytes, std::uint64_t seed)
      : one_way_link{w}, from{bytes}, random{seed} {
    current_ = this;
    std::swap(arm_, real_arm_);
  }
  racer(const racer&) = delete;
  ~racer() { std::swap(arm_, real_arm_); }

  one_way& one_way_link;
  local_mr& from;
  std::mt19937_64 random;
  bool wanted = false;
  std::uint64_t injected = 0;
  std::atomic<std::uint64_t> taken{0};

  void maybe(bool is_last_chance) {
    if (!wanted || (!is_last_chance && random() % 2 == 0)) return;
    inject();
    ++injected;
    const time_point until =
        one_way_link.link.executor.now() + std::chrono::microseconds{random() % 150};
    while (one_way_link.link.executor.now() < until) {
    }
  }
  void inject() {
    wanted = false;
    one_way_link.send(from);
  }

 private:
  static int arm(ibv_cq* cq, int solicited_only) noexcept {
    current_->maybe(false);
    const int rc = current_->real_arm_(cq, solicited_only);
    current_->maybe(true);
    return rc;
  }
  static inline racer* current_ = nullptr;
  decltype(ibv_context_ops::req_notify_cq) real_arm_ = &arm;
  decltype(ibv_context_ops::req_notify_cq)& arm_ =
      one_way_link.link.ctx.native_handle()->ops.req_notify_cq;
};

task<> race(racer& r, local_mr& to, std::uint64_t count) {
  loopback& link = r.one_way_link.link;
  while (r.injected < count) {
    link.a->post_recv(to);
    r.wanted = true;
    // Armed from before, it does not arm again: the message comes from here.
    if (link.driver.is_armed()) r.inject();
    co_await link.a->next_message();
    ++r.taken;
  }
}

/// Stops a race that stands still. It is a thread, since a timer of the executor would itself wake
/// what sleeps in vain.
class watchdog {
 public:
  watchdog(cordma::executor& executor, scope& watched, const std::atomic<std::uint64_t>& progress)
      : thread_{[this, &executor, &watched, &progress] { watch(executor, watched, progress); }} {}
  bool end() {
    {
      const std::lock_guard lock{mutex_};
      is_over_ = true;
    }
    over_.notify_one();
    thread_.join();
    return has_barked_;
  }

 private:
  void watch(cordma::executor& executor, scope& watched,
             const std::atomic<std::uint64_t>& progress) {
    std::unique_lock lock{mutex_};
    std::uint64_t before = progress;
    while (!over_.wait_for(lock, 5s, [this] { return is_over_; })) {
      if (before == progress) {
        has_barked_ = true;
        return executor.post([&watched] { watched.request_stop(); });
      }
      before = progress;
    }
  }

  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  bool has_barked_ = false;
  std::thread thread_;  // Last: it uses the others.
};

void race_completions(std::uint64_t count, std::uint64_t seed) {
  one_way one_way_link;
  local_mr from = one_way_link.link.pattern(8);
  local_mr to = one_way_link.link.memory(8);
  racer r{one_way_link, from, seed};
  completion_queue_driver& driver = one_way_link.link.driver;
  scope racing{one_way_link.link.executor};
  watchdog dog{one_way_link.link.executor, racing, r.taken};
  racing.spawn(race(r, to, count));
  one_way_link.link.run(racing.join());
  // No timer is armed: what is lost would be waited for for ever.
  CHECK(one_way_link.link.executor.next_deadline() == time_point::max());
  CHECK_FALSE(dog.end());
  CHECK(r.injected >= count);
  const completion_counters& seen = driver.counters();
  CHECK(seen.completions == r.taken);
  // Some completions came before the last look, others woke the driver; a device may raise an event
  // for each.
  CHECK(seen.wake_ups > 0);
  CHECK(seen.wake_ups <= r.taken);
  CHECK(seen.events <= seen.arms);
  CHECK(driver.verbs().unacknowledged_events() == 0);
}

}  // namespace

TEST_CASE("a completion that lands around the arming is seen without a timer",
          "[queue][device][E1]") {
  race_completions(10'000, 1);
}

TEST_CASE("soak: completions that land around the arming", "[queue][device][.soak-races]") {
  race_completions(test::soak::count(1'000'000), test::soak::seed());
}

namespace {

/// Asked after the driver, which is armed by then and has found nothing: sends messages, and lets
/// the executor fall asleep when all have arrived.
struct late_sender final : poller {
  late_sender(one_way& w, local_mr& f, local_mr& t) : one_way_link{w}, from{f}, to{t} {}
  std::size_t poll() noexcept override { return 0; }
  bool prepare_wait() noexcept override {
    if (std::exchange(has_sent, true)) return true;
    for (std::size_t i = 0; i < from.size_bytes(); i += 8) one_way_link.send(from.slice(i, 8));
    const volatile std::byte& last = to.bytes().back();
    const time_point deadline = one_way_link.link.executor.now() + 5s;
    while (last != from.bytes().back() && one_way_link.link.executor.now() < deadline) {
    }
    // The data comes before its completion.
    const time_point settled = one_way_link.link.executor.now() + 50ms;
    while (one_way_link.link.executor.now() < settled) {
    }
    return true;
  }

  one_way& one_way_link;
  local_mr& from;
  local_mr& to;
  bool has_sent = false;
};

task<> take(queue_pair& qp, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) co_await qp.next_message();
}

}  // namespace

TEST_CASE("one wake-up takes all completions, and acknowledges all events", "[queue][device][E2]") {
  static constexpr std::size_t count = 60;  // more than one poll takes
  one_way one_way_link;
  local_mr from = one_way_link.link.memory(count * 8);
  std::ranges::fill(from.bytes(), std::byte{1});
  local_mr to = one_way_link.link.memory(count * 8);
  for (std::size_t i = 0; i < count; ++i) one_way_link.link.a->post_recv(to.slice(i * 8, 8));
  late_sender late{one_way_link, from, to};
  one_way_link.link.executor.add(late);
  one_way_link.link.run(take(*one_way_link.link.a, count));
  CHECK(late.has_sent);
  const completion_counters& seen = one_way_link.link.driver.counters();
  CHECK(seen.completions == count);
  CHECK(seen.arms == 1);
  CHECK(seen.wake_ups == 1);
  CHECK(one_way_link.link.executor.counters().waits == 1);
  // The event is read before the next sleep, not before what it told of.
  CHECK(seen.events == 0);
  one_way_link.link.run(one_way_link.link.executor.sleep_for(1us));
  CHECK(one_way_link.link.driver.counters().events == 1);
  CHECK(one_way_link.link.driver.verbs().unacknowledged_events() == 0);
}

TEST_CASE("manual mode: what a queue pair left in the completion queue keeps its room",
          "[queue][device][E4][E5]") {
  const verbs::queue_pair_capabilities small{.send_wr_max = 8, .recv_wr_max = 8};
  loopback link{{.cq = {.depth = 128, .mode = completion_mode::manual}, .capabilities = small}};
  local_mr mr = link.memory(64);
  const unsigned room = link.driver.room();
  bool was_refused = false;
  std::uint64_t posted = 0;
  for (int i = 0; i < 100; ++i) {
    for (std::uint32_t k = 0; k < link.a->sends().depth(); ++k, ++posted) {
      static_cast<void>(link.a->post(write(mr.slice(0, 8), mr.remote_slice())));
    }
    link.run(link.executor.sleep_for(2ms));  // All complete, and nobody reaps them.
    try {
      link.reconnect();
    } catch (const error& e) {
      CHECK(e.code() == errc::limit_exceeded);
      was_refused = true;
      link.a.reset();
      link.driver.reap();
      link.reconnect();
    }
  }
  CHECK(was_refused);
  CHECK(posted > link.driver.verbs().capacity());
  CHECK(link.events.seen() == 0);  // Never overrun.
  link.driver.reap();
  CHECK(link.driver.room() == room);
  auto handle = link.a->post(write(mr, mr.remote_slice()));
  while (link.driver.reap() == 0) {
  }
  CHECK(link.run(handle) == 64);
}

TEST_CASE("a wake-up for nothing is harmless", "[queue][device][E3]") {
  loopback link;
  local_mr mr = link.memory(64);
  for (int i = 0; i < 50; ++i) {
    // An event of an arming that the driver knows nothing of, for an entry that is gone by then.
    REQUIRE(link.driver.verbs().arm() == 0);
    auto handle = link.a->post(write(mr.slice(0, 8), mr.remote_slice()));
    while (!handle.has_ended()) link.driver.reap();
    link.run(link.executor.sleep_for(100us));
    CHECK(link.run(link.a->write(mr, mr.remote_slice())) == 64);
  }
  CHECK(link.driver.counters().events > 0);
  CHECK(link.driver.verbs().unacknowledged_events() == 0);
}

TEST_CASE("in manual mode nothing completes before it is reaped", "[queue][device][E5]") {
  loopback link{{.cq = {.mode = completion_mode::manual}}};
  local_mr mr = link.memory(64);
  auto handle = link.a->post(write(mr, mr.remote_slice()));
  link.run(link.executor.sleep_for(50ms));
  CHECK_FALSE(handle.has_ended());
  CHECK(link.driver.counters().polls == 0);
  while (link.driver.reap() == 0) {
  }
  CHECK(handle.has_ended());
  CHECK(link.run(handle) == 64);
  CHECK(link.driver.counters().arms == 0);
}

namespace {

task<> send_later(loopback& link, local_mr_slice bytes) {
  co_await link.executor.sleep_for(1ms);
  co_await link.a->send(bytes);
}

}  // namespace

TEST_CASE("every mode that the executor drives completes what is awaited", "[queue][device]") {
  const completion_mode mode =
      GENERATE(completion_mode::event, completion_mode::busy, completion_mode::adaptive);
  const duration spin_max = GENERATE(duration{0}, duration{200us}, duration{1h});
  loopback link{{.cq = {.mode = mode, .poll_batch = 3, .spin_max = spin_max}}};
  local_mr mr = link.memory(64);
  for (int i = 0; i < 50; ++i) {
    CHECK(link.run(link.a->write(mr, mr.remote_slice())) == 64);
    const auto [got, sent] = link.run(when_all(link.b->recv(mr), link.a->send(mr.slice(0, 8))));
    CHECK(got.size_bytes == sent);
  }
  // The executor waits only for this: what is on soft0 completes when it is looked for.
  link.run(when_all(link.b->recv(mr), send_later(link, mr.slice(0, 8))));
  const completion_counters& seen = link.driver.counters();
  if (mode == completion_mode::busy) CHECK(seen.arms == 0);
  if (mode == completion_mode::adaptive && spin_max == 1h) CHECK(seen.arms == 0);
  if (mode == completion_mode::event) CHECK(seen.arms > 0);
  if (mode == completion_mode::adaptive && spin_max == 0s) CHECK(seen.arms > 0);
}

namespace {

/// Runs `body` in a turn of its own.
task<> only_task(loopback& link, auto body) {
  co_await link.executor.sleep_for(1ns);
  co_await body(link);
}

}  // namespace

TEST_CASE("a task that is alone finds what it awaits without another turn", "[queue]") {
  loopback link;
  static constexpr std::uint64_t count = 2'000;
  link.run(only_task(link, [](loopback& l) -> task<> {
    local_mr mr = l.memory(64);
    for (std::uint64_t i = 0; i < count / 4; ++i) {
      co_await l.a->write(mr, mr.remote_slice());
      co_await l.a->read(mr, mr.remote_slice());
      l.b->post_recv(mr);
      co_await l.a->send(mr.slice(0, 8));
      const message came = co_await l.b->next_message();
      CHECK(came.size_bytes == 8);
    }
  }));
  CHECK(link.executor.counters().ready_resumed < count / 32);
}

TEST_CASE("who looks for what it awaits overtakes nobody", "[queue][device]") {
  loopback link;
  local_mr mr = link.memory(64);
  std::string order;
  const auto receive = [](loopback& l, local_mr_slice to, std::string& log) -> task<> {
    co_await l.b->recv(to);
    log += 'r';
  };
  const auto send_only = [&](loopback& l) -> task<> {
    co_await l.a->send(mr.slice(0, 8));
    order += 's';
  };
  link.run(when_all(receive(link, mr, order), only_task(link, send_only)));
  CHECK(order == "rs");
}

TEST_CASE("what starts side by side is all under way before anyone looks", "[queue][device]") {
  loopback link;
  local_mr mr = link.memory(64);
  std::string order;
  const auto copy = [](loopback& l, const local_mr& within, std::string& log) -> task<> {
    log += 'b';
    co_await l.a->write(within, within.remote_slice());
    log += 'e';
  };
  link.run(only_task(link, [&](loopback& l) -> task<> {
    co_await when_all(copy(l, mr, order), copy(l, mr, order), l.a->write(mr, mr.remote_slice()));
  }));
  CHECK(order == "bbee");
}

TEST_CASE("a task that need never wait keeps neither timers nor other threads waiting",
          "[queue][device]") {
  manual_clock clock;
  loopback link{{.clock = &clock}};
  local_mr mr = link.memory(64);
  constexpr int late = 1'000;
  int n = 0;
  int called_at = 0;
  const auto copies = [&](loopback& l) -> task<> {
    for (;;) {
      co_await l.a->write(mr, mr.remote_slice());
      if (++n % late != 0) continue;
      l.executor.post([&] { called_at = n; });
      if (n == 2 * late) clock.advance(1h);
    }
  };
  CHECK(link.outcome(with_timeout(copies(link), 1h)).failure().code == errc::timed_out);
  CHECK(n < 3 * late);
  CHECK(called_at < 3 * late);
  CHECK(called_at >= 2 * late);
}

namespace {

/// Told at once of a handle's end, amid a reap.
using stopping_write = told_request<write_request<1>, scope>;
void stop(scope& tasks) noexcept { tasks.request_stop(); }

}  // namespace

TEST_CASE("who is asked to stop amid an inline poll stops", "[queue][device]") {
  loopback link{{.min_rnr_timer = 28}};
  local_mr mr = link.memory(64);
  const bool receives = GENERATE(true, false);
  scope tasks{link.executor};
  bool was_cancelled = false;
  tasks.spawn(
      [](loopback& l, const local_mr& bytes, bool recv, scope& all, bool& cancelled) -> task<> {
        co_await l.executor.sleep_for(1ns);
        stopping_write first{l.a->sends(), write(bytes, bytes.remote_slice()), all, &stop};
        first.post();
        // The SEND and the receive do not end: nobody sends, and nobody receives.
        cancelled = recv ? (co_await as_result(l.b->next_message())).is_cancelled()
                         : (co_await as_result(l.a->send(bytes.slice(0, 8)))).is_cancelled();
      }(link, mr, receives, tasks, was_cancelled));
  link.run(tasks.join());
  CHECK(was_cancelled);
}

TEST_CASE("what waits for room and is asked to stop amid an inline poll is withdrawn",
          "[queue][device][E6]") {
  loopback link{{.capabilities = {.send_wr_max = 4, .recv_wr_max = 4}, .min_rnr_timer = 28}};
  local_mr mr = link.memory(64);
  scope tasks{link.executor};
  bool was_cancelled = false;
  const auto awaits = [&](loopback& l) -> task<> {
    co_await l.executor.sleep_for(1ns);
    stopping_write on_b{l.b->sends(), write(mr, mr.remote_slice()), tasks, &stop};
    on_b.post();
    // The peer receives none of them: they stay, and leave no room.
    std::vector<request_op<send_request<1>>> ahead;
    while (l.a->sends().has_room()) ahead.push_back(l.a->post(send(mr.slice(0, 8))));
    auto waiting = l.a->write(mr, mr.remote_slice());
    was_cancelled = (co_await as_result(waiting)).is_cancelled();
    CHECK_FALSE(waiting.is_queued());
  };
  tasks.spawn(awaits(link));
  link.run(tasks.join());
  CHECK(was_cancelled);
  CHECK(link.driver.requests().of(request_kind::write).posted == 1);
}

TEST_CASE("a handle that was moved away asserts when it is awaited", "[queue][device]") {
  const support::death moved = support::run_in_child([] {
    loopback link;
    local_mr mr = link.memory(64);
    auto first = link.a->post(write(mr, mr.remote_slice()));
    auto second = std::move(first);
    link.run(only_task(link, [&](loopback&) -> task<> { co_await first; }));  // NOLINT: moved from.
  });
  CHECK(moved.aborted);
  CHECK_THAT(moved.text, Catch::Contains("moved away"));
}

TEST_CASE("an idle executor burns no CPU", "[queue][device][E8]") {
  const completion_mode mode = GENERATE(completion_mode::event, completion_mode::adaptive);
  loopback link{{.cq = {.mode = mode}}};
  local_mr mr = link.memory(64);
  link.run(link.a->write(mr, mr.remote_slice()));
  link.run(link.executor.sleep_for(5ms));
  const auto cpu = [] {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec * 1'000'000'000 + t.tv_nsec;
  };
  const auto cpu_before = cpu();
  const std::uint64_t waits_before = link.executor.counters().waits;
  const std::uint64_t iterations_before = link.executor.counters().iterations;
  link.run(link.executor.sleep_for(300ms));
  CHECK(link.executor.counters().waits - waits_before <= 3);
  CHECK(link.executor.counters().iterations - iterations_before <= 10);
  CHECK(cpu() - cpu_before < 60'000'000);
}

TEST_CASE("options out of range are refused with the number", "[queue][device][N9]") {
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

enum class kind {
  send,
  send_with_imm,
  write,
  write_with_imm,
  read,
  compare_swap,
  fetch_add,
  post,
  unsignaled,
  batch,
  slices,
  recv,
  next_message,
  with_timeout
};
constexpr int kinds = 14;

task<> repeat(loopback& link, kind what, local_mr_slice mr, remote_mr_slice remote, int count) {
  for (int i = 0; i < count; ++i) {
    switch (what) {
      case kind::send:
        link.b->post_recv(mr.last(8));
        co_await link.a->send(mr.first(8));
        co_await link.b->next_message();
        break;
      case kind::send_with_imm:
        link.b->post_recv(mr.last(8));
        co_await link.a->send_with_imm(mr.first(8), 1);
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
      case kind::unsignaled:
        static_cast<void>(
            link.a->post(write(mr.first(100), remote.first(100), {.signaled = false})));
        co_await link.a->write(mr.first(8), remote.first(8));
        break;
      case kind::slices:
        co_await link.a->write(gather(mr.first(300), mr.last(300)), remote.first(600));
        co_await link.a->read(scatter(mr.first(300), mr.last(300)), remote.first(600));
        break;
      case kind::batch:
        co_await link.a->post_all(write(mr.first(8), remote.first(8)),
                                  write(mr.first(8), remote.last(8)),
                                  read(mr.first(8), remote.last(8)));
        break;
      case kind::recv:
        co_await when_all(link.b->recv(mr.last(8)), link.a->send(mr.first(8)));
        break;
      case kind::next_message:
        link.b->post_recv(mr.last(8));
        static_cast<void>(link.a->post(send(mr.first(8))));
        co_await link.b->next_message();
        break;
      case kind::with_timeout:
        co_await with_timeout(link.a->write(mr.first(8), remote.first(8)), 1h);
        break;
    }
  }
}

}  // namespace

TEST_CASE("no operation allocates once warm", "[queue][device]") {
  if (!support::counts_allocations()) CORDMA_SKIP("a sanitizer's malloc is not counted");
  const completion_mode mode =
      GENERATE(completion_mode::busy, completion_mode::event, completion_mode::adaptive);
  // Workers one after the other wait in the kernel each time; side by side they are quicker.
  const int workers = GENERATE(1, 16);
  const int warm_up = workers == 1 ? 32 : 320;
  const int count = workers == 1 ? 100 : mode == completion_mode::busy ? 10'000 : 1'000;
  CAPTURE(int(mode), workers);
  loopback link{{.cq = {.mode = mode}}};
  local_mr mr = link.memory(4096);
  const auto repeat_all = [&](kind what, int times) {
    scope all{link.executor};
    for (int i = 0; i < workers; ++i) {
      all.spawn(repeat(link, what, mr, mr.remote_slice(), times / workers));
    }
    link.run(all.join());
  };
  for (int what = 0; what < kinds; ++what) {
    CAPTURE(what);
    repeat_all(kind(what), warm_up);
    const std::uint64_t before = support::allocation_count();
    repeat_all(kind(what), count);
    CHECK(support::allocation_count() - before == 0);
  }
}
