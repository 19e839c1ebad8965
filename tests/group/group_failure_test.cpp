#include "group/group_context.hpp"

#include "ranks.hpp"
#include "support/outcome.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <functional>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::expect;
using test::ranks;

namespace {

std::string text_of(const result<void>& outcome) {
  return outcome.has_failure() ? outcome.failure().to_string() : "no failure";
}

/// Checks that all ranks failed so, and that each text names one of the ranks.
void check_all(const std::vector<result<void>>& all, errc code, const std::string& rank) {
  for (const result<void>& one : all) {
    INFO(text_of(one));
    CHECK(code_of(one) == code);
    CHECK_THAT(text_of(one), Catch::Contains(rank));
  }
}

}  // namespace

TEST_CASE("ranks that call different operations are told which", "[group][device]") {
  using call = std::function<task<>(group&, local_mr&)>;
  const std::vector<std::pair<call, call>> pairs{
      {[](group& g, local_mr&) { return g.barrier(); },
       [](group& g, local_mr& m) { return g.broadcast(m, 0); }},
      {[](group& g, local_mr& m) {
         return g.all_reduce<float>(m.first(8), m.first(8), reduction::sum);
       },
       [](group& g, local_mr& m) {
         return g.all_reduce<float>(m.first(16), m.first(16), reduction::sum);
       }},
      {[](group& g, local_mr& m) {
         return g.all_reduce<float>(m.first(8), m.first(8), reduction::sum);
       },
       [](group& g, local_mr& m) {
         return g.all_reduce<int>(m.first(8), m.first(8), reduction::sum);
       }},
      {[](group& g, local_mr& m) {
         return g.all_reduce<int>(m.first(8), m.first(8), reduction::sum);
       },
       [](group& g, local_mr& m) {
         return g.all_reduce<int>(m.first(8), m.first(8), reduction::max);
       }},
      {[](group& g, local_mr& m) { return g.broadcast(m.slice(), 0); },
       [](group& g, local_mr& m) { return g.broadcast(m.slice(), 1); }},
      {[](group& g, local_mr& m) { return g.broadcast(m.slice(), 0); },
       [](group& g, local_mr& m) { return g.broadcast(m.first(9'000), 0); }},
      {[](group& g, local_mr& m) { return g.all_gather(m.slice(100, 4), m.first(16)); },
       [](group& g, local_mr& m) { return g.all_gather(m.slice(100, 8), m.first(32)); }},
  };
  for (const std::pair<call, call>& both : pairs) {
    ranks all{4};
    const auto outcomes = all.outcomes([&](group& g) -> task<> {
      local_mr memory = g.runtime().memory().allocate_zeroed(20'000);
      if (g.rank() == 2)
        co_await both.second(g, memory);
      else
        co_await both.first(g, memory);
      co_await g.barrier();  // A root may be done before it hears of the others.
    });
    check_all(outcomes, errc::ranks_disagree, "rank 2");
  }
}

TEST_CASE("a rank that is stopped in the middle ends the operation on every rank",
          "[group][device]") {
  for (const std::size_t size : {std::size_t{8}, std::size_t{1} << 20}) {
    ranks all{4};
    const auto outcomes = all.outcomes([&](group& g) -> task<> {
      local_mr memory = g.runtime().memory().allocate_zeroed(size);
      if (g.rank() == 3) {
        co_await test::until(g.runtime().executor(), [&] { return bool(g.why_failed()); });
        co_return co_await g.barrier();
      }
      auto operation = g.all_reduce<float>(memory.slice(), memory.slice(), reduction::sum);
      if (g.rank() != 1) co_return co_await std::move(operation);
      const auto stopped = co_await as_result(with_timeout(std::move(operation), 1ms));
      expect(code_of(stopped) == errc::timed_out, "its own deadline");
      co_await g.barrier();
    });
    check_all(outcomes, errc::rank_failed, "rank 1");
    for (unsigned r = 0; r < all.size(); ++r) CHECK(all[r].why_failed());

    std::vector<group> shrunk(4);
    std::string wrong =
        all.run([&](group& g) -> task<> { shrunk[g.rank()] = co_await g.shrink(); });
    CHECK(wrong == "");
    wrong = all.run([&](group& g) -> task<> {
      group& left = shrunk[g.rank()];
      expect(left.size() == 4 && left.rank() == g.rank(), "all survive");
      std::vector<int> one{1};
      co_await left.all_reduce(std::span{one}, reduction::sum);
      expect(one[0] == 4, "the sum");
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("a rank that has left ends what waits for it", "[group][device]") {
  ranks all{3};
  const auto outcomes = all.outcomes([](group& g) -> task<> {
    co_await g.barrier();
    if (g.rank() == 2) co_return co_await std::exchange(g, group{}).leave();
    co_await g.barrier();
  });
  CHECK(outcomes[2].has_value());
  check_all({outcomes[0], outcomes[1]}, errc::rank_failed, "rank 2 has left");
}

TEST_CASE("a rank may leave as soon as its own part is done", "[group][device]") {
  for (int round = 0; round < 20; ++round) {
    ranks all{5};
    const std::string wrong = all.run([](group& g) -> task<> {
      local_mr memory = g.runtime().memory().allocate_zeroed(20'000);
      co_await g.broadcast(memory.slice(), 1);
      co_await g.broadcast(memory.first(8), 1);
      group done = std::exchange(g, group{});
      if (done.rank() % 2 == 0) co_await done.leave();
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("an operation whose task is destroyed ends on the other ranks, and frees its memory late",
          "[group][device]") {
  ranks all{3};
  bool is_destroyed = false;
  const auto outcomes = all.outcomes([&is_destroyed](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_zeroed(1 << 20);
    if (g.rank() == 0) {
      {
        struct nobody : waiter {
          nobody() noexcept
              : waiter{[](waiter&) noexcept -> std::coroutine_handle<> {
                  return std::noop_coroutine();
                }} {}
        } waits;
        task<> started = g.broadcast(memory.slice(), 2);
        expect(!started.start(waits, {&g.runtime().executor(), {}}), "it waits");
      }
      is_destroyed = true;
      co_return co_await g.barrier();
    }
    if (g.rank() == 2) co_await test::until(g.runtime().executor(), [&] { return is_destroyed; });
    co_await g.broadcast(memory.slice(), 2);
    co_await g.barrier();
  });
  check_all(outcomes, errc::rank_failed, "rank 0");
}

TEST_CASE("wrong arguments on one rank end the operation on all", "[group][device]") {
  ranks all{3};
  const auto outcomes = all.outcomes([](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_zeroed(64);
    co_await g.all_gather(memory.last(8), memory.first(g.rank() == 1 ? 23 : 24));
  });
  CHECK(code_of(outcomes[1]) == errc::wrong_length);
  check_all({outcomes[0], outcomes[2]}, errc::rank_failed, "rank 1");
}

TEST_CASE("bytes that are no blocks of equal length end an all_to_all on all ranks",
          "[group][device]") {
  ranks all{3};
  const auto outcomes = all.outcomes([](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_zeroed(64);
    const std::size_t size = g.rank() == 1 ? 23 : 24;
    co_await g.all_to_all(memory.first(size), memory.last(size));
  });
  CHECK(code_of(outcomes[1]) == errc::wrong_length);
  check_all({outcomes[0], outcomes[2]}, errc::rank_failed, "rank 1");
}
