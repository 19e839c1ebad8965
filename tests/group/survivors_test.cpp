#include "group/survivors.hpp"

#include "group/group_context.hpp"
#include "ranks.hpp"
#include "support/nobody.hpp"
#include "support/until.hpp"

#include <cordma/coro/scope.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <catch2/catch.hpp>

#include <functional>
#include <string>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using group_protocol::kind;
using test::expect;
using test::ranks;

namespace {

constexpr unsigned ranks_of_group = 5;

detail::group_context& context_of(group& g) { return *detail::group_context::of(g).get(); }

/// Five ranks that shrink their group, of which two die meanwhile. Decisions of ranks that die are
/// frames of the test's own.
class shrinking {
 public:
  explicit shrinking(std::vector<unsigned> survivors) : survivors_{std::move(survivors)} {}

  [[nodiscard]] auto asked(unsigned by, unsigned decider) {
    return test::until(all_.rt().executor(), [this, by, decider] {
      return context_of(all_[decider]).vote().is_asked_by(by);
    });
  }
  /// Has a rank hear that all survive, from a rank that has heard it, or decided so.
  void hears(unsigned rank, unsigned from, unsigned decider) {
    detail::group_context& c = context_of(all_[rank]);
    const std::byte everybody{(1 << ranks_of_group) - 1};
    c.on_frame(from, {.kind = kind::decision, .group = c.id(), .step = decider}, {&everybody, 1},
               {});
  }
  void dies(unsigned rank) {
    for (const unsigned r : survivors_)
      context_of(all_[r]).whole().cut_off(rank, {.code = errc::disconnected, .call = "a test"});
  }
  void begins(unsigned rank) {
    running_->spawn([this, rank]() -> task<> {
      group rest = co_await all_[rank].shrink();
      // Survivors of a decision may be dead by now.
      while (rest.why_failed()) {
        group fewer = co_await rest.shrink();
        rest = std::move(fewer);
      }
      co_await rest.barrier();
      sizes_ += std::to_string(rest.size()) + " ";
      rests_.push_back(std::move(rest));
    });
  }
  void all_begin() {
    for (const unsigned r : survivors_) begins(r);
  }
  /// Runs what happens, and returns the sizes of the groups that the survivors end up with.
  std::string run(const std::function<task<>(shrinking&)>& what) {
    const auto body = [&](scope& running) -> task<> {
      running_ = &running;
      co_await what(*this);
    };
    all_.rt().run(with_timeout(with_scope(body), 20s));
    return sizes_;
  }

 private:
  const std::vector<unsigned> survivors_;
  ranks all_{ranks_of_group, {.connect_at_once = true}};
  scope* running_ = nullptr;
  std::string sizes_;
  std::vector<group> rests_;
};

struct stage {
  const char* name;
  std::vector<unsigned> survivors;
  std::function<task<>(shrinking&)> what;
};

const std::vector<stage> stages{
    {"both before any rank asks",
     {2, 3, 4},
     [](shrinking& s) -> task<> {
       s.dies(0);
       s.dies(1);
       s.all_begin();
       co_return;
     }},
    {"both when all have asked",
     {2, 3, 4},
     [](shrinking& s) -> task<> {
       s.all_begin();
       for (const unsigned r : {2u, 3u, 4u}) co_await s.asked(r, 0);
       s.dies(0);
       s.dies(1);
     }},
    {"the next to decide, and then the decider",
     {2, 3, 4},
     [](shrinking& s) -> task<> {
       s.all_begin();
       for (const unsigned r : {2u, 3u, 4u}) co_await s.asked(r, 0);
       s.dies(1);
       s.dies(0);
     }},
    {"the decider, and the next when all have asked that",
     {2, 3, 4},
     [](shrinking& s) -> task<> {
       s.all_begin();
       s.dies(0);
       for (const unsigned r : {2u, 3u, 4u}) co_await s.asked(r, 1);
       s.dies(1);
     }},
    {"the decider, when one survivor has heard the decision, and the next",
     {2, 3, 4},
     [](shrinking& s) -> task<> {
       s.all_begin();
       for (const unsigned r : {2u, 3u, 4u}) co_await s.asked(r, 0);
       s.hears(4, 0, 0);
       s.dies(0);
       s.dies(1);
     }},
    {"the decider, when all have heard the decision, and another",
     {1, 2, 4},
     [](shrinking& s) -> task<> {
       s.all_begin();
       for (const unsigned r : {1u, 2u, 4u}) co_await s.asked(r, 0);
       for (const unsigned r : {1u, 2u, 4u}) s.hears(r, 0, 0);
       s.dies(0);
       s.dies(3);
     }},
    {"the decider, and one that tells its decision to a rank that has asked the next",
     {1, 2, 4},
     [](shrinking& s) -> task<> {
       s.all_begin();
       s.dies(0);
       for (const unsigned r : {2u, 4u}) co_await s.asked(r, 1);
       s.hears(4, 3, 0);
       s.dies(3);
     }},
    {"the decider, and one that tells its decision to a rank that does not ask yet",
     {1, 2, 4},
     [](shrinking& s) -> task<> {
       s.begins(1);
       s.begins(2);
       s.dies(0);
       co_await s.asked(2, 1);
       co_await s.asked(1, 4);
       s.hears(4, 3, 0);
       s.begins(4);
       s.dies(3);
     }},
    {"the decider, and one that tells its decision to the next",
     {1, 2, 4},
     [](shrinking& s) -> task<> {
       s.all_begin();
       s.dies(0);
       for (const unsigned r : {2u, 4u}) co_await s.asked(r, 1);
       s.hears(1, 3, 0);
       s.dies(3);
     }},
};

}  // namespace

TEST_CASE("two ranks that die within one shrink leave the others in one group, whenever they do",
          "[group][device]") {
  for (const stage& one : stages) {
    INFO(one.name);
    CHECK(shrinking{one.survivors}.run(one.what) == "3 3 3 ");
  }
}

TEST_CASE("a rank that gives up its shrink, and drops the group, keeps no survivor waiting",
          "[group][device]") {
  unsigned counted_on = 0;
  for (unsigned rounds = 0; rounds < 40; ++rounds) {
    ranks all{3, {.connect_at_once = true}};
    std::vector<group> others(3);  // The rank stays, and answers questions.
    const std::string wrong = all.run([&, rounds](group& g) -> task<> {
      group other = co_await g.duplicate();
      others[g.rank()] = std::move(other);
      if (g.rank() == 2) {
        {
          test::nobody waits;
          task<group> started = g.shrink();
          started.start(waits, {&g.runtime().executor(), {}});
          co_await test::until(g.runtime().executor(),
                               [left = rounds]() mutable { return left-- == 0; });
        }
        g = {};
        co_return;
      }
      group rest = co_await g.shrink();
      const auto done = co_await as_result(with_timeout(rest.barrier(), 20s));
      if (rest.size() == 2) co_return expect(done.has_value(), "a barrier of two");
      ++counted_on;
      expect(done.has_failure() && done.failure().code == errc::rank_failed, "why it failed");
    });
    CHECK(wrong == "");
  }
  CHECK(counted_on > 0);
}
