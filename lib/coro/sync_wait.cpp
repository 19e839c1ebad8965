#include <cordma/coro/sync_wait.hpp>

#include <thread>

namespace cordma::detail {

void drive(cordma::scheduler& scheduler, const bool& ended) {
  while (!ended) {
    // Each round serves both: coroutines that keep each other ready must not delay the timers.
    const std::size_t resumed = scheduler.run_ready();
    if (resumed + scheduler.fire_due() > 0) continue;
    const time_point next = scheduler.next_deadline();
    CORDMA_ASSERT(next != time_point::max(), "sync_wait: nothing is left that could end this");
    std::this_thread::sleep_for(next - scheduler.now());
  }
}

}  // namespace cordma::detail
