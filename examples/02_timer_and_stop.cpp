// Timers, time limits and stop requests. A stop is asked for; what is stopped answers by throwing
// `cancelled`, which is not an error. Needs no RDMA device.

#include <cordma/coro/scope.hpp>
#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>

#include <cstdio>

using namespace std::chrono_literals;

namespace {

cordma::task<> tick(int& ticks) {
  for (;;) {
    co_await cordma::sleep_for(1ms);  // Throws `cancelled` when the scope is stopped.
    ++ticks;
  }
}

cordma::task<> main_task() {
  // The first of two ends the other.
  const auto first = co_await cordma::when_any(cordma::sleep_for(1h), cordma::sleep_for(5ms));
  std::printf("sleeper %zu was first\n", first.index());

  // A limit on anything that can be awaited.
  const auto outcome = co_await cordma::as_result(cordma::with_timeout(cordma::sleep_for(1h), 5ms));
  std::printf("an hour in 5 ms: %s\n", outcome.failure().to_string().c_str());

  // A scope passes a stop to all that runs in it, and waits until they have ended.
  int ticks = 0;
  co_await cordma::with_scope([&](cordma::scope& s) -> cordma::task<> {
    s.spawn(tick(ticks));
    co_await cordma::sleep_for(20ms);
    s.request_stop();
  });
  std::printf("the ticker %s\n", ticks > 0 ? "ticked, and was stopped" : "never ticked");
}

}  // namespace

int main() try {
  cordma::executor executor;
  executor.run(main_task());
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return 1;
}
