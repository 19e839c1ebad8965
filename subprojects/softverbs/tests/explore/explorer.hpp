#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

/// A scheduler for the threads of a scenario: one runs at a time, and at each step (wire/step.hpp)
/// the scheduler says which goes on. By itself a thread goes on until it waits or ends, and then
/// the next one does. The scheduler runs the scenario again and again, each time in another order.
/// Every order with at most a given number of deviations gets its run (delay bounding: Emmi,
/// Qadeer, Rakamaric, POPL 2011). Every step is sequentially consistent here.
namespace softverbs::explorer {

struct scenario {
  std::string name;
  unsigned engines = 2;          ///< number of engines, one for each node
  std::function<void()> before;  ///< makes all runs begin alike
  /// The work of each thread of the program, done once in each run. Engines are threads, too.
  std::vector<std::function<void()>> threads;
  /// Wakes everything, when all wait for ever: the run can then end, and counts as stuck.
  std::function<void()> rescue;
};

struct outcome {
  std::uint64_t runs = 0;
  std::uint64_t steps = 0;     ///< in all runs
  std::uint64_t longest = 0;   ///< steps of one run
  std::uint64_t diverged = 0;  ///< runs that did not repeat what they had in common with the last
  std::uint64_t stuck = 0;     ///< runs in which all threads waited for what never came
  std::string first_stuck;     ///< the threads that ran, and at which step another went on
};

struct limits {
  unsigned deviations = 1;
  std::uint64_t runs_max = UINT64_MAX;  ///< limit of runs, at which it ends early
  bool stop_when_stuck = true;
  /// Real time that the kernel may take to deliver what was sent: before, no run is stuck. Eventfds
  /// and shared memory take none.
  std::chrono::milliseconds delivery_max{0};
};

/// \thread the one that began the engines' threads, while all of those wait.
outcome explore(const scenario& what, const limits& how);

/// For the scenario's threads: waits, in steps, until the descriptor is readable.
void await_readable(int fd);

}  // namespace softverbs::explorer
