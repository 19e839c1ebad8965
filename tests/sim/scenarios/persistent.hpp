#pragma once

#include "support.hpp"

namespace cordma::test {

/// How long things go wrong, and how long all may then take to be well. A link may stand still for
/// 30 s. A loss shows within 5 s, and then a program begins again.
inline constexpr duration faults_time = std::chrono::seconds{2};
inline constexpr duration recovery_time_max = std::chrono::seconds{60};

/// Programs that take an error for an end, and begin again. Each has a last exchange, which begins
/// when nothing goes wrong any more: the program is done when that has succeeded.
struct persistent : cast {
  persistent(sim::world& of, unsigned count) : cast{of, count}, done(count) {}

  bool is_calm = false;
  bool end_together = false;  ///< No program ends before all are done.
  std::vector<char> done;

  [[nodiscard]] bool are_done_from(unsigned first) const {
    return std::all_of(done.begin() + first, done.end(), [](char one) { return one != 0; });
  }
  [[nodiscard]] bool are_all_done() const { return are_done_from(0); }
  [[nodiscard]] bool is_done(unsigned host) const {
    return end_together ? are_all_done() : done[host] != 0;
  }

  /// Runs `attempt()` until the program is done. It gives up after a while, since a queue that has
  /// failed serves no more: the next program of the host has others.
  template <class Attempt>
  task<> go_on(unsigned self, Attempt attempt) {
    for (unsigned n = 0; n < 20 && !is_done(self); ++n) {
      static_cast<void>(co_await as_result(attempt()));
      co_await sleep_for(std::chrono::milliseconds{5});
    }
  }
};

/// Runs the program of a host again whenever it has ended before its time.
template <std::derived_from<cast> Play>
void keep_running(const std::shared_ptr<Play>& all, unsigned number) {
  if (all->is_done(number)) return;
  if (!all->hosts[number]->is_running() && !all->is_down[number]) start(all, number);
  all->w.after(std::chrono::milliseconds{10}, [all, number] { keep_running(all, number); });
}

/// Keeps the world going while no other host runs.
template <std::derived_from<cast> Play>
void keep_watch(const std::shared_ptr<Play>& all) {
  sim::host& watch = all->w.add_host("watch");
  for (;;) {
    try {
      return watch.start([all](runtime&) { return until([all] { return all->are_all_done(); }); });
    } catch (const error&) {
      // A verb was refused, by chance.
    }
  }
}

/// Runs programs in trouble, and then without any, until they are done.
template <std::derived_from<persistent> Play>
void play_until_well(const std::shared_ptr<Play>& all) {
  for (unsigned n = 0; n < all->size(); ++n) keep_running(all, n);
  all->w.after(faults_time, [all] {
    all->w.heal();
    all->is_calm = true;
  });
  keep_watch(all);
  all->w.run(faults_time + recovery_time_max);
}

}  // namespace cordma::test
