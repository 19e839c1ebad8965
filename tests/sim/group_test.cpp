#include "open_network.hpp"

#include <cordma/group/group.hpp>
#include <cordma/sim.hpp>

#include <catch2/catch.hpp>

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

/// Ranks that add their numbers, `rounds` times.
struct summing {
  std::vector<endpoint> members;
  unsigned rounds = 10;
  std::vector<std::int64_t> sums;

  task<> live(runtime& rt, unsigned rank) {
    group_options options;
    options.connections.insecure = true;
    group g = co_await group::join(rt, meeting::by_list(members, rank), options);
    std::int64_t value = rank + 1;
    for (unsigned n = 0; n < rounds; ++n) {
      value = rank + 1;
      co_await g.all_reduce(std::span{&value, 1}, reduction::sum);
      co_await g.barrier();
    }
    sums[rank] = value;
    co_await g.leave();
  }
};

std::uint64_t sum_up(std::uint64_t seed, unsigned ranks, const sim::faults& wanted) {
  sim::world w{seed, wanted};
  summing all;
  all.sums.resize(ranks);
  std::vector<sim::host*> hosts;
  for (unsigned r = 0; r < ranks; ++r) hosts.push_back(&w.add_host("rank" + std::to_string(r)));
  for (const sim::host* h : hosts) all.members.push_back(h->endpoint(test::sim_port));
  for (unsigned r = 0; r < ranks; ++r)
    hosts[r]->start([&all, r](runtime& rt) { return all.live(rt, r); }, test::open_network);
  w.run();
  for (const std::int64_t sum : all.sums) CHECK(sum == ranks * (ranks + 1) / 2);
  return w.trace_hash();
}

/// Ranks that add until one of them dies, and then go on without it.
struct surviving {
  std::vector<endpoint> members;
  std::vector<unsigned> left;  ///< ranks that each survivor ended with
  std::vector<std::string> told;

  task<> live(runtime& rt, unsigned rank) {
    group_options options;
    options.connections.insecure = true;
    options.silence_max = 2s;
    group g = co_await group::join(rt, meeting::by_list(members, rank), options);
    for (;;) {
      std::int64_t value = 1;
      const auto summed = co_await as_result(g.all_reduce(std::span{&value, 1}, reduction::sum));
      if (summed.has_value()) {
        if (value != g.size()) throw std::runtime_error{"a wrong sum"};
        co_await sleep_for(1ms);
        continue;
      }
      told[rank] = summed.failure().to_string();
      break;
    }
    group rest = co_await g.shrink();
    std::int64_t value = 1;
    co_await rest.all_reduce(std::span{&value, 1}, reduction::sum);
    left[rank] = unsigned(value);
    co_await rest.leave();
    co_await g.leave();
  }
};

std::uint64_t lose_one(std::uint64_t seed, unsigned ranks, const sim::faults& wanted) {
  sim::world w{seed, wanted};
  surviving all;
  all.left.resize(ranks);
  all.told.resize(ranks);
  std::vector<sim::host*> hosts;
  for (unsigned r = 0; r < ranks; ++r) hosts.push_back(&w.add_host("rank" + std::to_string(r)));
  for (const sim::host* h : hosts) all.members.push_back(h->endpoint(test::sim_port));
  for (unsigned r = 0; r < ranks; ++r)
    hosts[r]->start([&all, r](runtime& rt) { return all.live(rt, r); }, test::open_network);
  const unsigned dead = unsigned(seed % ranks);
  w.after(100ms + seed * 7919 % 40 * 1ms, [&] { hosts[dead]->kill(); });
  w.run();
  for (unsigned r = 0; r < ranks; ++r) {
    if (r == dead) continue;
    INFO("rank " << r << ": " << all.told[r]);
    CHECK(all.left[r] == ranks - 1);
  }
  return w.trace_hash();
}

/// Rank 0 writes to the other ranks, which then leave. Returns why a rank failed; empty: none did.
std::string write_and_leave(std::uint64_t seed) {
  sim::world w{seed, sim::faults::harsh()};
  std::string wrong;
  std::vector<endpoint> members;
  const auto live = [&](runtime& rt, unsigned rank) -> task<> {
    group_options options;
    options.connections.insecure = true;
    group g = co_await group::join(rt, meeting::by_list(members, rank), options);
    local_mr data = rt.memory().allocate_zeroed(32 << 10);
    const auto sent = co_await as_result(g.broadcast(data.slice(), 0));
    if (sent.has_failure()) wrong += sent.failure().to_string();
    co_await g.leave();
  };
  std::vector<sim::host*> hosts{&w.add_host("rank0"), &w.add_host("rank1")};
  for (const sim::host* h : hosts) members.push_back(h->endpoint(test::sim_port));
  for (unsigned r = 0; r < hosts.size(); ++r)
    hosts[r]->start([&live, r](runtime& rt) { return live(rt, r); }, test::open_network);
  w.run();
  return wrong;
}

}  // namespace

TEST_CASE("a rank's word that it leaves may overtake its acknowledgement of the last WRITE",
          "[sim]") {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    INFO("seed " << seed);
    CHECK(write_and_leave(seed) == "");
  }
}

TEST_CASE("all ranks but one that dies go on together", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    INFO("seed " << seed);
    lose_one(seed, 4, seed % 2 == 0 ? sim::faults::none() : sim::faults::harsh());
  }
}

TEST_CASE("ranks on hosts of a world add up", "[sim]") {
  const std::uint64_t first = sum_up(1, 4, sim::faults::none());
  CHECK(sum_up(1, 4, sim::faults::none()) == first);
}

TEST_CASE("ranks add up over a slow and jerky network", "[sim]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    sum_up(seed, 3, sim::faults::harsh());
  }
}
