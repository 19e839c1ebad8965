// Measures coroutines when nothing waits for a device: needs none. Beside asio's: asio_bench.cpp.

#include "support/bench.hpp"

#include <cordma/coro/channel.hpp>
#include <cordma/coro/sync_wait.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/coro/when_all.hpp>

namespace {

using cordma::task;

// Not inlined, as a function of another file would not be: this is what a call costs.
[[gnu::noinline]] std::uint64_t called(std::uint64_t i) {
  asm volatile("" : "+r"(i));
  return i;
}

task<std::uint64_t> awaited(std::uint64_t i) {
  asm volatile("" : "+r"(i));
  co_return i;
}

task<> await_tasks(std::uint64_t n) {
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < n; ++i) sum += co_await awaited(i);
  asm volatile("" : : "r"(sum));
}

task<> send_each(cordma::channel<std::uint64_t>& to, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) co_await to.send(i);
}

task<> receive_each(cordma::channel<std::uint64_t>& from, std::uint64_t n) {
  for (std::uint64_t i = 0; i < n; ++i) co_await from.receive();
}

}  // namespace

BENCH("coro/await", "What does awaiting a task that ends at once cost over a call?") {
  recorder.compare(
      "task",
      [](std::uint64_t n) {
        std::uint64_t sum = 0;
        for (std::uint64_t i = 0; i < n; ++i) sum += called(i);
        asm volatile("" : : "r"(sum));
      },
      [](std::uint64_t n) { cordma::sync_wait(await_tasks(n)); });
}

BENCH("coro/channel", "What does an item through a full channel between two tasks cost?") {
  cordma::scheduler scheduler;
  cordma::channel<std::uint64_t> items{1};
  recorder.measure("hand over", [&](std::uint64_t n) {
    cordma::sync_wait(scheduler, cordma::when_all(send_each(items, n), receive_each(items, n)));
  });
}
