#include "collective_run.hpp"
#include "persistent.hpp"
#include "scenarios.hpp"

namespace cordma::test {
namespace {

using namespace std::chrono_literals;

meeting meeting_of(const cast& all, unsigned self) {
  std::vector<endpoint> members;
  for (unsigned r = 0; r < all.size(); ++r) members.push_back(all.at(r));
  return meeting::by_list(std::move(members), self);
}

/// Ranks that call collective operations, several at once, in a group and in its halves.
struct collecting : cast {
  collecting(sim::world& of, unsigned count) : cast{of, count} {
    for (unsigned n = 0; n < 12; ++n) {
      batches.emplace_back(1 + w.random(2));
      for (collective_call& c : batches.back()) {
        c = any_collective(*this, size());
        c.salt = 64 * c.salt + ++calls;  // Tags of operations under way at once differ.
      }
    }
  }
  std::vector<std::vector<collective_call>> batches;
  std::int64_t calls = 0;

  task<> run_batch(group& g, const std::vector<collective_call>& batch) {
    co_await with_scope([&](scope& all) -> task<> {
      for (const collective_call& c : batch) {
        collective_call own = c;
        own.root %= g.size();
        all.spawn(must_run_collective(*this, g, own));
      }
      co_return;
    });
  }

  task<> live(runtime& rt, unsigned self) {
    group_options options;
    options.connections.insecure = true;
    group g = co_await group::join(rt, meeting_of(*this, self), options);
    const std::size_t third = batches.size() / 3;
    for (std::size_t n = 0; n < third; ++n) co_await run_batch(g, batches[n]);
    group half = co_await g.split(self % 2, self);
    for (std::size_t n = third; n < 2 * third; ++n) co_await run_batch(half, batches[n]);
    // Two groups of the same ranks run operations at once, which do not meet.
    group twin = co_await g.duplicate();
    for (std::size_t n = 2 * third; n < batches.size(); ++n)
      co_await when_all(run_batch(g, batches[n]), run_batch(twin, batches[n]));
    co_await twin.leave();
    co_await half.leave();
    co_await g.leave();
  }
};

/// How a rank's host fails.
enum class rank_end { kill, lose_power, freeze };

/// Ranks that go on without those that die.
struct dying : cast {
  dying(sim::world& of, unsigned count) : cast{of, count} {
    for (collective_call& c : calls) c = any_collective(*this, size());
  }
  std::vector<collective_call> calls = std::vector<collective_call>(20);
  unsigned dead = 0;
  rank_end how = rank_end::kill;
  std::vector<unsigned> left = std::vector<unsigned>(size());

  /// Calls operations until one fails, or `times` have succeeded. Returns true if all succeeded.
  task<bool> work(group& g, unsigned times) {
    for (unsigned n = 0; n < times; ++n) {
      collective_call c = calls[n % calls.size()];
      c.root %= g.size();
      const auto ended = co_await as_result(run_collective(*this, g, c));
      if (!ended.has_value()) {
        require(code_of(ended) == errc::rank_failed, "an operation failed, but not for a rank");
        co_return false;
      }
    }
    co_return true;
  }

  task<> live(runtime& rt, unsigned self) {
    group_options options;
    options.connections.insecure = true;
    options.connections.connect_timeout = 2s;
    options.silence_max = 2s;
    group g = co_await group::join(rt, meeting_of(*this, self), options);
    for (bool has_worked = true; has_worked;) {
      has_worked = co_await work(g, 10);
      co_await sleep_for(1ms);
    }
    result<group> made = co_await as_result(g.shrink());
    if (self == dead) {
      require(code_of(made) == errc::rank_failed, "a rank that was cut off is in the group");
      co_return;
    }
    group rest = std::move(made).value();
    left[self] = rest.size();
    const bool has_worked = co_await work(rest, 10);
    require(has_worked, "the ranks that are left cannot go on");
    // A rank that was frozen asks the others.
    co_await until([this] { return !hosts[dead]->is_running(); }, 200ms);
    co_await rest.leave();
    co_await g.leave();
  }
};

/// Ranks that make their group anew after each error, however often.
struct rejoining : persistent {
  rejoining(sim::world& of, unsigned count) : persistent{of, count} {
    end_together = true;
    for (collective_call& c : calls) c = any_collective(*this, size());
  }
  std::vector<collective_call> calls = std::vector<collective_call>(6);

  /// All ranks run the same operations in each group. One that is done serves those that are not.
  task<> work(runtime& rt, unsigned self) {
    group_options options;
    options.connections.insecure = true;
    options.connections.connect_timeout = 2s;
    options.join_timeout = 3s;
    options.silence_max = 2s;
    const bool is_last = is_calm;
    group g = co_await group::join(rt, meeting_of(*this, self), options);
    for (const collective_call& c : calls) co_await run_collective(*this, g, c);
    co_await g.leave();
    if (is_last) done[self] = 1;
    co_await when_any(until([this] { return are_all_done(); }), sleep_for(500ms));
  }

  task<> live(runtime& rt, unsigned self) {
    co_await go_on(self, [&] { return work(rt, self); });
  }
};

}  // namespace

void play_collectives(sim::world& w) {
  w.forbid_receiver_not_ready();
  start_all<collecting>(w, 2 + unsigned(w.random(4)));
  w.run(10min);
}

void play_repeated_collectives(sim::world& w) {
  play_until_well(std::make_shared<rejoining>(w, 2 + unsigned(w.random(2))));
}

void play_dying_ranks(sim::world& w) {
  const auto all = start_all<dying>(w, 3 + unsigned(w.random(2)));
  all->dead = unsigned(w.random(all->size() - 1));
  all->how = rank_end(w.random(2));
  w.after(20ms + all->moment(20ms), [all] {
    sim::host& h = *all->hosts[all->dead];
    switch (all->how) {
      case rank_end::kill: h.kill(); break;
      case rank_end::lose_power: h.lose_power(); break;
      case rank_end::freeze:
        h.freeze();
        all->w.after(20s, [&h] { h.thaw(); });
        break;
    }
  });
  w.run(2min);
  for (unsigned r = 0; r < all->size(); ++r)
    all->require(r == all->dead || all->left[r] == all->size() - 1, "another number of ranks");
}

}  // namespace cordma::test
