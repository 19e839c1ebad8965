#include "group/side_threads.hpp"

#include "support/outcome.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>

using namespace cordma;
using detail::side_threads;

namespace {

/// Blocks until the stop.
int until_stopped(const std::stop_token& stop) {
  std::mutex mutex;
  std::unique_lock lock{mutex};
  std::condition_variable_any changed;
  changed.wait(lock, stop, [] { return false; });
  return 0;
}

}  // namespace

TEST_CASE("a blocking call runs on another thread and gives its value", "[group]") {
  executor ex;
  side_threads threads;
  const auto call = [](const std::stop_token&) { return std::this_thread::get_id(); };
  CHECK(ex.run(threads.run(ex, call)) != std::this_thread::get_id());
}

TEST_CASE("what a blocking call throws reaches the task", "[group]") {
  executor ex;
  side_threads threads;
  const auto call = [](const std::stop_token&) -> int { throw std::runtime_error{"no"}; };
  CHECK_THROWS_WITH(ex.run(threads.run(ex, call)), "no");
}

TEST_CASE("a task that is stopped asks its thread to stop", "[group]") {
  std::atomic<bool> has_stopped = false;
  {
    side_threads threads;
    executor ex;
    ex.run(with_scope([&](scope& running) -> task<> {
      running.spawn(threads.run(ex, [&](const std::stop_token& stop) {
        until_stopped(stop);
        has_stopped = true;
        return 0;
      }));
      co_await sleep_for(duration{0});
      running.request_stop();
    }));
  }
  CHECK(has_stopped);
}

TEST_CASE("a thread may outlive the executor of its task", "[group]") {
  std::atomic<bool> may_end = false;
  std::atomic<bool> has_ended = false;
  side_threads threads;
  {
    executor ex;
    ex.run(with_scope([&](scope& running) -> task<> {
      running.spawn(threads.run(ex, [&](const std::stop_token&) {
        may_end.wait(false);
        has_ended = true;
        return 0;
      }));
      co_await sleep_for(duration{0});
      running.request_stop();
    }));
  }
  CHECK_FALSE(has_ended);
  may_end = true;
  may_end.notify_all();
}
