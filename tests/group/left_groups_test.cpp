#include "group/world.hpp"

#include "ranks.hpp"
#include "support/nobody.hpp"
#include "support/outcome.hpp"
#include "support/until.hpp"
#include "world_of.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <optional>
#include <string>
#include <utility>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::expect;
using test::ranks;
using test::world_of;

namespace {

task<> duplicate_and_drop(group& g) {
  const group again = co_await g.duplicate();
  expect(again.size() == g.size(), "the size of a duplicate");
}

/// Ends when no rank remembers a group that it has left.
task<> all_forgotten(ranks& all) {
  co_await with_timeout(test::until(all.rt().executor(),
                                    [&all] {
                                      std::size_t left = 0;
                                      for (unsigned r = 0; r < all.size(); ++r)
                                        left += world_of(all[r]).left_groups();
                                      return left == 0;
                                    }),
                        20s);
}

}  // namespace

TEST_CASE("a group that all its ranks have dropped is forgotten", "[group][device]") {
  ranks all{4, {.connect_at_once = true}};
  CHECK(all.run([](group& g) -> task<> {
    for (unsigned round = 0; round < 50; ++round) {
      group again = co_await g.duplicate();
      group half = co_await again.split(g.rank() % 2);
      co_await half.barrier();
      if (g.rank() == 0) again = {};
    }
  }) == "");
  all.rt().run(all_forgotten(all));
  CHECK(all.run([](group& g) { return g.barrier(); }) == "");
}

TEST_CASE("a group is remembered until its last rank has left it, and tells that rank so",
          "[group][device]") {
  ranks all{2, {.connect_at_once = true}};
  group kept;
  CHECK(all.run([&kept](group& g) -> task<> {
    group again = co_await g.duplicate();
    if (g.rank() == 1) kept = std::move(again);
  }) == "");
  CHECK(world_of(all[0]).left_groups() == 1);
  CHECK(world_of(all[1]).left_groups() == 0);
  const auto outcome = all.rt().run(as_result(kept.barrier()));
  CHECK(code_of(outcome) == errc::rank_failed);
  CHECK_THAT(outcome.failure().to_string(), Catch::Contains("rank 0 has left"));
  kept = {};
  all.rt().run(all_forgotten(all));
}

TEST_CASE("ranks that were not connected tell each other of groups that they left, once they are",
          "[group][device]") {
  ranks all{8};
  CHECK(all.run(duplicate_and_drop) == "");
  local_mr memory = all.rt().memory().allocate_zeroed(8 * 8 * 1024);
  for (unsigned r = 0; r < all.size(); ++r) CHECK(world_of(all[r]).left_groups() == 1);
  CHECK(all.run([&memory](group& g) -> task<> {
    local_mr in = g.runtime().memory().allocate_zeroed(8 * 1024);
    co_await g.all_to_all(in.slice(), memory.slice(g.rank() * 8 * 1024, 8 * 1024));
  }) == "");
  all.rt().run(all_forgotten(all));
}

TEST_CASE("a group whose other ranks are dead is forgotten", "[group][device]") {
  ranks all{3, {.connect_at_once = true}};
  std::vector<group> kept(3);
  CHECK(all.run([&kept](group& g) -> task<> {
    group again = co_await g.duplicate();
    kept[g.rank()] = std::move(again);
  }) == "");
  kept[0] = {};
  CHECK(world_of(all[0]).left_groups() == 1);
  for (const unsigned dead : {1u, 2u})
    world_of(all[0]).cut_off(dead, {.code = errc::disconnected, .call = "a test"});
  CHECK(world_of(all[0]).left_groups() == 0);
}

TEST_CASE("a rank that drops its groups while it connects has left, and is not dead",
          "[group][device]") {
  unsigned left = 0;
  for (unsigned iterations = 0; iterations < 150; ++iterations) {
    ranks all{2};
    cordma::executor& executor = all.rt().executor();
    all.rt().run([](ranks& of, unsigned left_to_wait) -> task<> {
      {
        test::nobody waits;
        task<> sent = of[1].send({}, 0);
        sent.start(waits, {&of.rt().executor(), {}});
        co_await test::until(of.rt().executor(), [&left_to_wait] { return left_to_wait-- == 0; });
      }
      of[1] = {};
    }(all, iterations));
    const detail::rank_peer* const peer = world_of(all[0]).known_peer(1);
    if (peer == nullptr) continue;
    all.rt().run(with_timeout(test::until(executor,
                                          [peer] {
                                            using state = detail::rank_peer::state;
                                            return peer->now != state::open &&
                                                   peer->now != state::lost;
                                          }),
                              20s));
    CHECK_FALSE(world_of(all[0]).is_dead(1));
    left += world_of(all[0]).is_gone(1) ? 1 : 0;
  }
  CHECK(left > 0);
}
