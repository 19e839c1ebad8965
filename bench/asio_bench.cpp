// Compares tasks, scopes, timers and calls between threads on our executor with the same in asio,
// which most C++ programs would use instead.

#include "support/bench.hpp"
#include "support/latencies.hpp"
#include "support/second_thread.hpp"

#include <cordma/asio.hpp>
#include <cordma/coro/event.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/io/executor.hpp>

#include <asio/awaitable.hpp>
#include <asio/co_spawn.hpp>
#include <asio/detached.hpp>
#include <asio/executor_work_guard.hpp>
#include <asio/experimental/awaitable_operators.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/redirect_error.hpp>
#include <asio/steady_timer.hpp>
#include <asio/this_coro.hpp>
#include <asio/use_awaitable.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>

namespace {

using cordma::task;

/// One thread runs each of the two, and each is told so where it can be.
constexpr int one_thread = 1;

/// Runs a coroutine of asio to its end.
void run(asio::io_context& context, asio::awaitable<void> body) {
  asio::co_spawn(context, std::move(body), asio::detached);
  context.run();
  context.restart();
}

task<std::uint64_t> ready(std::uint64_t i) {
  asm volatile("" : "+r"(i));
  co_return i;
}
asio::awaitable<std::uint64_t> asio_ready(std::uint64_t i) {
  asm volatile("" : "+r"(i));
  co_return i;
}

task<> await_each(std::uint64_t n) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < n; ++i) sum += co_await ready(i);
  asm volatile("" : : "r"(sum));
}
asio::awaitable<void> asio_await_each(std::uint64_t n) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < n; ++i) sum += co_await asio_ready(i);
  asm volatile("" : : "r"(sum));
}

task<> nothing() { co_return; }
asio::awaitable<void> asio_nothing() { co_return; }

task<> spawn_and_join(cordma::executor& executor, std::uint64_t n) {
  cordma::scope children{executor};
  for (; n > 0; --n) {
    children.spawn(nothing());
    co_await children.join();
  }
}
asio::awaitable<void> asio_spawn_and_join(std::uint64_t n) {
  const auto executor = co_await asio::this_coro::executor;
  for (; n > 0; --n) co_await asio::co_spawn(executor, asio_nothing(), asio::use_awaitable);
}

task<> await_two(std::uint64_t n) {
  for (; n > 0; --n) co_await cordma::when_all(nothing(), nothing());
}
asio::awaitable<void> asio_await_two(std::uint64_t n) {
  using namespace asio::experimental::awaitable_operators;
  for (; n > 0; --n) co_await (asio_nothing() && asio_nothing());
}

struct idle_timer : cordma::timer {
  idle_timer() noexcept : timer{[](timer&) noexcept {}} {}
};

task<> set_and_cancel(cordma::executor& executor, std::uint64_t n) {
  idle_timer timer;
  for (; n > 0; --n) {
    executor.arm(timer, executor.after(std::chrono::hours{1}));
    timer.disarm();
  }
  co_return;
}
/// asio reports a cancelled wait in the context's next turn; turns are taken now and then.
void asio_set_and_cancel(asio::io_context& context, std::uint64_t n) {
  asio::steady_timer timer{context};
  constexpr std::uint64_t told_together = 64;
  for (; n > 0; --n) {
    timer.expires_after(std::chrono::hours{1});
    timer.async_wait([](const asio::error_code&) {});
    timer.cancel();
    if (n % told_together == 0 || n == 1) {
      context.poll();
      context.restart();
    }
  }
}

task<> sleep_and_stop(cordma::executor& executor, std::uint64_t n) {
  for (; n > 0; --n) {
    cordma::scope sleepers{executor};
    sleepers.spawn(cordma::as_result(cordma::sleep_for(std::chrono::hours{1})));
    // Behind the sleeper, which starts in the next turn.
    sleepers.spawn([](cordma::scope& all) -> task<> {
      all.request_stop();
      co_return;
    }(sleepers));
    co_await sleepers.join();
  }
}
asio::awaitable<void> asio_sleep(asio::steady_timer& timer) {
  timer.expires_after(std::chrono::hours{1});
  asio::error_code told;
  co_await timer.async_wait(asio::redirect_error(asio::use_awaitable, told));
}
asio::awaitable<void> asio_wake(asio::steady_timer& timer) {
  timer.cancel();
  co_return;
}
asio::awaitable<void> asio_sleep_and_stop(std::uint64_t n) {
  using namespace asio::experimental::awaitable_operators;
  asio::steady_timer timer{co_await asio::this_coro::executor};
  for (; n > 0; --n) co_await (asio_sleep(timer) && asio_wake(timer));
}

/// An executor that a second thread runs, until it is told to end.
class our_thread {
 public:
  explicit our_thread(bench::second_thread& other) : other_{other} { other_.start(&body_); }
  ~our_thread() {
    executor_.post([this] { end_.set(); });
    other_.wait();
  }
  our_thread(const our_thread&) = delete;
  template <class F>
  void post(F&& f) {
    executor_.post(std::forward<F>(f));
  }

 private:
  bench::second_thread& other_;
  cordma::executor executor_;
  cordma::event end_;
  const std::function<void()> body_{[this] { executor_.run(end_.wait()); }};
};

class asio_thread {
 public:
  explicit asio_thread(bench::second_thread& other) : other_{other} { other_.start(&body_); }
  ~asio_thread() {
    work_.reset();
    other_.wait();
  }
  asio_thread(const asio_thread&) = delete;
  template <class F>
  void post(F&& f) {
    asio::post(context_, std::forward<F>(f));
  }

 private:
  bench::second_thread& other_;
  asio::io_context context_{one_thread};
  asio::executor_work_guard<asio::io_context::executor_type> work_{context_.get_executor()};
  const std::function<void()> body_{[this] { context_.run(); }};
};

/// Calls for the other thread, as fast as they can be made; returns when all have run.
template <class Thread>
void post_each(Thread& to, std::uint64_t n) {
  std::atomic<std::uint64_t> ran{0};
  for (std::uint64_t i = 0; i < n; ++i)
    to.post(
        [&ran] { ran.store(ran.load(std::memory_order_relaxed) + 1, std::memory_order_release); });
  while (ran.load(std::memory_order_acquire) != n) {
  }
}

/// Long enough for a thread that has nothing to do to fall asleep.
void let_fall_asleep() {
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds{100};
  while (std::chrono::steady_clock::now() < until) {
  }
}

/// One call at a time: the other thread has gone to sleep when it comes.
template <class Thread>
void post_and_wait(Thread& to, bench::latencies& each) {
  each.start();
  for (std::uint64_t n = each.round(); n > 0; --n) {
    let_fall_asleep();
    each.begin();
    post_each(to, 1);
    each.lap();
  }
}

/// Waits that end at once, and those of a timer that is due. A task awaits them, or a coroutine of
/// asio.
task<> await_ready(std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) static_cast<void>(co_await ready(i));
}
asio::awaitable<void> await_ready_across(asio::io_context& context, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i)
    static_cast<void>(co_await cordma::async_await(context, ready(i), asio::use_awaitable));
}
task<> await_due(cordma::executor& executor, std::uint64_t n) {
  for (; n > 0; --n) co_await executor.sleep_for(std::chrono::nanoseconds{0});
}
asio::awaitable<void> await_due_across(asio::io_context& context, cordma::executor& executor,
                                       std::uint64_t n) {
  for (; n > 0; --n)
    co_await cordma::async_await(context, executor.sleep_for(std::chrono::nanoseconds{0}),
                                 asio::use_awaitable);
}

}  // namespace

BENCH("asio/bridge", "What does cordma's bridge to asio cost, beside a task that awaits?") {
  asio::io_context context{one_thread};
  cordma::executor_options options;
  options.reactor = std::make_unique<cordma::asio_reactor>(context);
  cordma::executor inside{std::move(options)};
  cordma::executor plain;
  const auto across = [&](asio::awaitable<void> body) {
    cordma::event over{inside};
    asio::co_spawn(context, std::move(body), [&](const std::exception_ptr&) { over.set(); });
    inside.run(over.wait());
  };
  recorder.allow_allocations(0.1);  // asio allocates the coroutine of each round.
  recorder.compare(
      "ready at once", [&](std::uint64_t n) { plain.run(await_ready(n)); },
      [&](std::uint64_t n) { across(await_ready_across(context, n)); });
  recorder.compare(
      "a timer that is due", [&](std::uint64_t n) { plain.run(await_due(plain, n)); },
      [&](std::uint64_t n) { across(await_due_across(context, inside, n)); });
  recorder.compare(
      "the executor inside a context, and alone",
      [&](std::uint64_t n) { plain.run(await_due(plain, n)); },
      [&](std::uint64_t n) { inside.run(await_due(inside, n)); });
}

BENCH("asio/await", "What does awaiting a task that is ready cost, beside asio::awaitable?") {
  cordma::executor ours;
  asio::io_context theirs{one_thread};
  recorder.compare(
      "one task", [&](std::uint64_t n) { run(theirs, asio_await_each(n)); },
      [&](std::uint64_t n) { ours.run(await_each(n)); });
  recorder.compare(
      "two tasks at once", [&](std::uint64_t n) { run(theirs, asio_await_two(n)); },
      [&](std::uint64_t n) { ours.run(await_two(n)); });
}

BENCH("asio/spawn", "What do spawning a task and joining it cost, beside asio::co_spawn?") {
  cordma::executor ours;
  asio::io_context theirs{one_thread};
  recorder.compare(
      "spawn and join", [&](std::uint64_t n) { run(theirs, asio_spawn_and_join(n)); },
      [&](std::uint64_t n) { ours.run(spawn_and_join(ours, n)); });
}

BENCH("asio/timer", "What do setting and cancelling a timer cost, beside asio::steady_timer?") {
  cordma::executor ours;
  asio::io_context theirs{one_thread};
  recorder.compare(
      "the next to fire", [&](std::uint64_t n) { asio_set_and_cancel(theirs, n); },
      [&](std::uint64_t n) { ours.run(set_and_cancel(ours, n)); });
  recorder.compare(
      "a task that sleeps", [&](std::uint64_t n) { run(theirs, asio_sleep_and_stop(n)); },
      [&](std::uint64_t n) { ours.run(sleep_and_stop(ours, n)); });
  // The kernel need not be told of one that comes later.
  idle_timer sooner;
  ours.arm(sooner, ours.after(std::chrono::minutes{30}));
  asio::steady_timer asio_sooner{theirs, std::chrono::minutes{30}};
  asio_sooner.async_wait([](const asio::error_code&) {});
  recorder.compare(
      "one behind another", [&](std::uint64_t n) { asio_set_and_cancel(theirs, n); },
      [&](std::uint64_t n) { ours.run(set_and_cancel(ours, n)); });
}

BENCH("asio/post", "What does a call on another thread cost, beside asio::post?") {
  recorder.allow_allocations(1);  // The call itself; on either side.
  const bench::pinned here{0};
  bench::second_thread other, another;
  our_thread ours{other};
  asio_thread theirs{another};
  recorder.compare(
      "many at once", [&](std::uint64_t n) { post_each(theirs, n); },
      [&](std::uint64_t n) { post_each(ours, n); });
  bench::compare_latencies(
      recorder, "one by one, asleep", {100, 40, 5},
      [&](bench::latencies& each) { post_and_wait(theirs, each); },
      [&](bench::latencies& each) { post_and_wait(ours, each); });
}
