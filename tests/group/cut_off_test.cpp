#include "group/world.hpp"

#include "ranks.hpp"
#include "support/outcome.hpp"
#include "support/until.hpp"
#include "world_of.hpp"

#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <optional>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::ranks;
using test::world_of;

namespace {

/// Breaks the connection between two ranks, of which neither has closed it.
void break_link(group& from, unsigned to) {
  world_of(from).peer(to).conn.qp().abort({.code = errc::timed_out, .call = "a test"});
}

task<> work_until_it_fails(group& g) {
  for (;;) co_await g.barrier();
}

/// The end of a rank's operations, and of its `shrink`.
struct end {
  std::string why;
  std::string shrunk;
};

/// Has all ranks work, breaks the connection between ranks 0 and 1, and lets all shrink.
std::vector<end> ends_of(ranks& all) {
  std::vector<end> ends(all.size());
  const std::string wrong = all.run([&](group& g) -> task<> {
    co_await g.barrier();
    if (g.rank() == 0) break_link(g, 1);
    ends[g.rank()].why = (co_await as_result(work_until_it_fails(g))).failure().to_string();
    result<group> rest = co_await as_result(g.shrink());
    if (rest.has_failure()) {
      ends[g.rank()].shrunk = rest.failure().to_string();
      co_return;
    }
    group left = std::move(rest).value();
    ends[g.rank()].shrunk = std::to_string(left.size());
    co_await left.barrier();
  });
  CHECK(wrong == "");
  return ends;
}

constexpr const char* cut_off = "the others have cut off this one";

}  // namespace

TEST_CASE("of two ranks that lose the connection between them alone, the lower goes on with all",
          "[group][device]") {
  for (const unsigned size : {2u, 3u, 6u}) {
    INFO(size << " ranks");
    ranks all{size, {.connect_at_once = true}};
    const std::vector<end> ends = ends_of(all);
    for (unsigned r = 0; r < size; ++r) {
      INFO("rank " << r);
      CHECK_THAT(ends[r].why, Catch::Contains(r == 1 ? cut_off : "rank 1"));
      CHECK_THAT(ends[r].shrunk, Catch::Contains(r == 1 ? cut_off : std::to_string(size - 1)));
    }
  }
}

TEST_CASE("a rank that the others have cut off is told so when it connects", "[group][device]") {
  ranks all{2};
  const auto outcomes = all.outcomes([](group& g) -> task<> {
    if (g.rank() == 0) {
      world_of(g).cut_off(1, {.code = errc::timed_out, .call = "a test"});
      co_return;
    }
    local_mr memory = g.runtime().memory().allocate_zeroed(8);
    co_await g.send(memory.slice(), 0);
  });
  REQUIRE(code_of(outcomes[1]) == errc::rank_failed);
  CHECK_THAT(outcomes[1].failure().to_string(), Catch::Contains(cut_off));
  CHECK_THAT(all[1].why_failed()->to_string(), Catch::Contains(cut_off));
}

TEST_CASE("the shrink of a rank that was cut off asks no rank that it never met",
          "[group][device]") {
  ranks all{3};
  for (const unsigned r : {0u, 1u})
    world_of(all[r]).cut_off(2, {.code = errc::timed_out, .call = "a test"});
  local_mr memory = all.rt().memory().allocate_zeroed(8);
  const auto told = all.rt().run(as_result(with_timeout(all[2].send(memory.slice(), 1), 20s)));
  CHECK(code_of(told) == errc::rank_failed);
  const auto shrunk = all.rt().run(as_result(with_timeout(all[2].shrink(), 20s)));
  REQUIRE(code_of(shrunk) == errc::rank_failed);
  CHECK_THAT(shrunk.failure().to_string(), Catch::Contains(cut_off));
}

TEST_CASE("a message for memory that went with its connection ends when the rank is lost",
          "[group][device]") {
  ranks all{2, {.connect_at_once = true}};
  detail::world& here = world_of(all[0]);
  local_mr sent = all.rt().memory().allocate_zeroed(100'000);
  local_mr received = all.rt().memory().allocate_zeroed(100'000);
  std::optional<result<void>> offered, told;
  const auto lose_connection = [&](scope& running) -> task<> {
    executor& on = all.rt().executor();
    running.spawn(
        [&]() -> task<> { offered = co_await as_result(all[1].broadcast(received.slice(), 0)); });
    co_await test::until(on, [&] { return here.counted.early == 1; });
    break_link(all[0], 1);
    co_await test::until(on, [&] { return here.peer(1).now == detail::rank_peer::state::lost; });
    told = co_await as_result(all[0].broadcast(sent.slice(), 0));
  };
  all.rt().run(with_timeout(with_scope(lose_connection), 20s));
  CHECK(code_of(*told) == errc::rank_failed);
  CHECK_THAT(told->failure().to_string(), Catch::Contains("rank 1"));
  CHECK_THAT(offered->failure().to_string(), Catch::Contains(cut_off));
}
