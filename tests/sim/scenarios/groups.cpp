#include "scenarios.hpp"
#include "support.hpp"

#include <cordma/group/group.hpp>

#include <numeric>

namespace cordma::test {
namespace {

using namespace std::chrono_literals;
using numbers = std::span<std::int64_t>;

enum class collective {
  barrier,
  broadcast,
  scatter,
  gather,
  all_gather,
  all_gather_uneven,
  all_to_all,
  reduce,
  all_reduce,
  reduce_scatter,
  scan,
  ring,
  last = ring
};

/// One operation of all ranks. Element i of rank r begins as `value(r, i)`.
struct collective_call {
  collective kind{};
  std::size_t count = 0;  ///< elements of a block
  unsigned root = 0;
  std::int64_t salt = 0;

  [[nodiscard]] std::int64_t value(unsigned rank, std::size_t i) const {
    return salt + std::int64_t(rank) * 1'000'003 + std::int64_t(i) * 7;
  }
  /// The sum over the ranks before `end`.
  [[nodiscard]] std::int64_t sum(unsigned end, std::size_t i) const {
    std::int64_t all = 0;
    for (unsigned r = 0; r < end; ++r) all += value(r, i);
    return all;
  }
  /// Blocks of an uneven operation.
  [[nodiscard]] std::size_t count_of(unsigned rank) const { return (count + rank) % (count + 1); }
};

/// Registered memory of numbers.
class number_block {
 public:
  number_block(runtime& rt, std::size_t count)
      : memory_{rt.memory().allocate_zeroed(std::max<std::size_t>(count, 1) * 8)}, count_{count} {}
  [[nodiscard]] local_mr_slice slice() { return memory_.first(count_ * 8); }
  [[nodiscard]] numbers values() { return slice().as<std::int64_t>(); }

 private:
  local_mr memory_;
  std::size_t count_;
};

/// Runs one operation on one rank and compares the result.
class collective_run {
 public:
  collective_run(const cast& all, group& g, const collective_call& c) : all_{all}, g_{g}, c_{c} {}

  /// Runs the operation. \errors  also a finding, if the operation fails.
  task<> must_run() {
    const auto ended = co_await as_result(run());
    if (!ended.has_failure()) co_return;
    all_.w.fail("collective " + std::to_string(int(c_.kind)) + ", " + std::to_string(c_.count) +
                " elements, root " + std::to_string(c_.root) + ", rank " +
                std::to_string(g_.rank()) + " of " + std::to_string(g_.size()) + ": " +
                ended.failure().to_string());
  }

  task<> run() {
    switch (c_.kind) {
      case collective::barrier: return g_.barrier();
      case collective::broadcast: return broadcast();
      case collective::scatter: return scatter();
      case collective::gather: return gather();
      case collective::all_gather: return all_gather();
      case collective::all_gather_uneven: return all_gather_uneven();
      case collective::all_to_all: return all_to_all();
      case collective::reduce: return reduce();
      case collective::all_reduce: return all_reduce();
      case collective::reduce_scatter: return reduce_scatter();
      case collective::scan: return scan();
      case collective::ring: return ring();
    }
    std::terminate();
  }

 private:
  [[nodiscard]] number_block own(std::size_t count) const {
    number_block made{g_.runtime(), count};
    for (std::size_t i = 0; i < count; ++i) made.values()[i] = c_.value(g_.rank(), i);
    return made;
  }
  [[nodiscard]] number_block empty(std::size_t count) const { return {g_.runtime(), count}; }
  /// Compares the element number i with `expected(i)`.
  template <class Expected>
  void check(numbers seen, Expected expected) const {
    for (std::size_t i = 0; i < seen.size(); ++i)
      all_.require(seen[i] == expected(i), "a collective operation: a wrong result");
  }
  /// Checks blocks of `count` elements, of which the one of rank r is that rank's own.
  void check_gathered(numbers seen) const {
    check(seen, [&](std::size_t i) { return c_.value(unsigned(i / c_.count), i % c_.count); });
  }
  [[nodiscard]] bool is_root() const { return g_.rank() == c_.root; }
  [[nodiscard]] std::size_t all_count() const { return c_.count * g_.size(); }

  task<> broadcast() {
    number_block data = own(c_.count);
    co_await g_.broadcast(data.slice(), c_.root);
    check(data.values(), [&](std::size_t i) { return c_.value(c_.root, i); });
  }
  task<> scatter() {
    number_block in = own(is_root() ? all_count() : 0), out = empty(c_.count);
    co_await g_.scatter(in.slice(), out.slice(), c_.root);
    check(out.values(), [&](std::size_t i) { return c_.value(c_.root, g_.rank() * c_.count + i); });
  }
  task<> gather() {
    number_block in = own(c_.count), out = empty(is_root() ? all_count() : 0);
    co_await g_.gather(in.slice(), out.slice(), c_.root);
    check_gathered(out.values());
  }
  task<> all_gather() {
    number_block in = own(c_.count), out = empty(all_count());
    co_await g_.all_gather(in.slice(), out.slice());
    check_gathered(out.values());
  }
  task<> all_gather_uneven() {
    std::vector<std::size_t> sizes;
    std::size_t all = 0;
    for (unsigned r = 0; r < g_.size(); ++r) {
      sizes.push_back(c_.count_of(r) * 8);
      all += c_.count_of(r);
    }
    number_block in = own(c_.count_of(g_.rank())), out = empty(all);
    co_await g_.all_gather_uneven(in.slice(), out.slice(), sizes);
    std::size_t begin = 0;
    for (unsigned r = 0; r < g_.size(); begin += c_.count_of(r), ++r) {
      check(out.values().subspan(begin, c_.count_of(r)),
            [&](std::size_t i) { return c_.value(r, i); });
    }
  }
  task<> all_to_all() {
    number_block in = own(all_count()), out = empty(all_count());
    co_await g_.all_to_all(in.slice(), out.slice());
    check(out.values(), [&](std::size_t i) {
      return c_.value(unsigned(i / c_.count), g_.rank() * c_.count + i % c_.count);
    });
  }
  task<> reduce() {
    number_block in = own(c_.count), out = empty(is_root() ? c_.count : 0);
    co_await g_.reduce<std::int64_t>(in.slice(), out.slice(), reduction::sum, c_.root);
    check(out.values(), [&](std::size_t i) { return c_.sum(g_.size(), i); });
  }
  task<> all_reduce() {
    number_block data = own(c_.count);
    co_await g_.all_reduce<std::int64_t>(data.slice(), data.slice(), reduction::sum);
    check(data.values(), [&](std::size_t i) { return c_.sum(g_.size(), i); });
  }
  task<> reduce_scatter() {
    number_block in = own(all_count()), out = empty(c_.count);
    co_await g_.reduce_scatter<std::int64_t>(in.slice(), out.slice(), reduction::sum);
    check(out.values(), [&](std::size_t i) { return c_.sum(g_.size(), g_.rank() * c_.count + i); });
  }
  task<> scan() {
    number_block in = own(c_.count), out = empty(c_.count);
    co_await g_.scan<std::int64_t>(in.slice(), out.slice(), reduction::sum);
    check(out.values(), [&](std::size_t i) { return c_.sum(g_.rank() + 1, i); });
  }
  /// Each rank sends to the next and receives from the one before.
  task<> ring() {
    const unsigned next = (g_.rank() + 1) % g_.size();
    const unsigned before = (g_.rank() + g_.size() - 1) % g_.size();
    const auto tag = std::uint32_t(c_.salt);
    number_block in = own(c_.count), out = empty(c_.count);
    co_await when_all(g_.send(in.slice(), next, tag), g_.receive(out.slice(), before, tag));
    check(out.values(), [&](std::size_t i) { return c_.value(before, i); });
  }

  const cast& all_;
  group& g_;
  const collective_call& c_;
};

collective_call any_collective(const cast& all, unsigned ranks) {
  return {.kind = collective(all.w.random(std::uint64_t(collective::last))),
          .count = any_part(all.w, all.w.random(7) == 0 ? 4 * kib : 256).length,
          .root = unsigned(all.w.random(ranks - 1)),
          .salt = std::int64_t(all.w.random(1'000'000))};
}

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
      for (collective_call& c : batches.back()) c = any_collective(*this, size());
    }
  }
  std::vector<std::vector<collective_call>> batches;

  task<> run_batch(group& g, const std::vector<collective_call>& batch) {
    co_await with_scope([&](scope& all) -> task<> {
      for (const collective_call& c : batch) {
        all.spawn([&]() -> task<> {
          collective_call own = c;
          own.root %= g.size();
          collective_run run{*this, g, own};
          co_await run.must_run();
        });
      }
      co_return;
    });
  }

  task<> live(runtime& rt, unsigned self) {
    group_options options;
    options.connections.insecure = true;
    group g = co_await group::join(rt, meeting_of(*this, self), options);
    for (std::size_t n = 0; n < batches.size() / 2; ++n) co_await run_batch(g, batches[n]);
    group half = co_await g.split(self % 2, self);
    for (std::size_t n = batches.size() / 2; n < batches.size(); ++n)
      co_await run_batch(half, batches[n]);
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
      collective_run run{*this, g, c};
      const auto ended = co_await as_result(run.run());
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

}  // namespace

void play_collectives(sim::world& w) {
  start_all<collecting>(w, 2 + unsigned(w.random(4)));
  w.run(10min);
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
