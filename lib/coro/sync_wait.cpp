#include <cordma/coro/sync_wait.hpp>

#include <thread>

namespace cordma::detail {

void drive(scheduler& home, const bool& ended) {
  while (!ended) {
    if (home.run_ready() > 0 || home.fire_due() > 0) continue;
    const std::optional<time_point> next = home.next_deadline();
    CORDMA_ASSERT(next.has_value(), "sync_wait: nothing is left that could end this");
    std::this_thread::sleep_until(*next);
  }
}

}  // namespace cordma::detail
