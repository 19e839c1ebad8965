#include "stop_signal.hpp"

#include <csignal>

namespace perf {
namespace {

// A handler knows no object, so this is global.
std::atomic<bool> was_told{false};
static_assert(std::atomic<bool>::is_always_lock_free);

void note(int) { was_told.store(true, std::memory_order_relaxed); }

}  // namespace

const std::atomic<bool>& stop_by_signal() {
  struct sigaction action{};
  action.sa_handler = &note;
  action.sa_flags = int(SA_RESETHAND) | SA_RESTART;
  for (const int number : {SIGINT, SIGTERM})
    static_cast<void>(::sigaction(number, &action, nullptr));
  return was_told;
}

}  // namespace perf
