#include "group/group_context.hpp"
#include "group/tagged_messages.hpp"

#include "ranks.hpp"
#include "support/nobody.hpp"
#include "support/outcome.hpp"
#include "support/until.hpp"

#include <cordma/coro/when_all.hpp>
#include <cordma/coro/with_timeout.hpp>

#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using test::code_of;
using test::expect;
using test::ranks;

namespace {

/// Lets what is ready run once.
class [[nodiscard]] others_run : public operation_base<others_run>, private suspension {
 public:
  using value_type = void;
  others_run() noexcept : suspension{nullptr} {}
  bool start(waiter& w, const environment& env) noexcept {
    begin(w, {env.scheduler, {}});
    suspension::end();
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return false; }
  result<void> take_result() noexcept { return {}; }
};

/// Waits until that holds.
template <class Condition>
task<> until(Condition holds) {
  while (!holds()) co_await others_run{};
}

}  // namespace

TEST_CASE("splits that are under way at once give each rank the parts that its calls name",
          "[group][device]") {
  ranks all{6};
  const std::string wrong = all.run([](group& g) -> task<> {
    const auto sum_of_ranks = [&g](group& of) -> task<unsigned> {
      std::vector<unsigned> sum{g.rank()};
      co_await of.all_reduce(std::span{sum}, reduction::sum);
      co_return sum[0];
    };
    for (unsigned round = 0; round < 6; ++round) {
      group halves, thirds, again;
      const auto halve = [&]() -> task<> { halves = co_await g.split(g.rank() % 2); };
      const auto divide = [&]() -> task<> { thirds = co_await g.split(g.rank() % 3); };
      const auto copy = [&]() -> task<> { again = co_await g.duplicate(); };
      if (g.rank() == round) {
        co_await halve();
        co_await divide();
        co_await copy();
      } else {
        co_await when_all(halve(), divide(), copy());
      }
      expect(halves.size() == 3 && thirds.size() == 2 && again.size() == 6, "the sizes");
      const auto [a, b, c] =
          co_await when_all(sum_of_ranks(halves), sum_of_ranks(thirds), sum_of_ranks(again));
      expect(a == (g.rank() % 2 == 0 ? 6 : 9), "the ranks of a half");
      expect(b == 2 * (g.rank() % 3) + 3, "the ranks of a third");
      expect(c == 15, "all ranks");
    }
  });
  CHECK(wrong == "");
}

TEST_CASE("a message by tag that was received lets no message of an operation go",
          "[group][device]") {
  constexpr unsigned by_tag = detail::group_context::eager_window;
  constexpr unsigned operations = 2 * detail::group_context::eager_window;
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_zeroed(8 * operations);
    unsigned ended = 0;
    const auto broadcast = [&](unsigned n) -> task<> {
      co_await g.broadcast(memory.slice(8 * n, 8), 0);
      ++ended;
    };
    if (g.rank() == 1) {
      for (unsigned n = 0; n < by_tag; ++n) co_await g.receive(memory.slice());
      co_await g.receive(memory.slice(), 0, 7);
      const std::uint64_t early = g.counters().early - by_tag - 1;
      expect(early == detail::group_context::eager_window,
             "messages of operations here: " + std::to_string(early));
    }
    co_await with_scope([&](scope& running) -> task<> {
      for (unsigned n = 0; n < operations; ++n) running.spawn(broadcast(n));
      if (g.rank() == 1) co_return;
      for (unsigned n = 0; n < by_tag; ++n) co_await g.send(memory.first(8), 1);
      co_await until([&] { return ended == detail::group_context::eager_window; });
      co_await g.send(memory.first(8), 1, 7);
    });
  });
  CHECK(wrong == "");
}

TEST_CASE("a receive from oneself may wait for longer than a rank may be silent",
          "[group][device]") {
  manual_clock clock;
  ranks all{2, {.silence_max = 20ms}, 0, test::by_hand(clock)};
  const std::string wrong = all.run([&clock](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_zeroed(8);
    const auto send_late = [&]() -> task<> {
      for (unsigned n = 0; n < 100; ++n) {
        clock.advance(1ms);
        co_await test::due_timers_fired();
      }
      expect(!g.why_failed(), "the group works");
      co_await g.send(memory.first(4), g.rank());
    };
    const auto [got, ignored] = co_await when_all(g.receive(memory.slice(), g.rank()), send_late());
    expect(got.size_bytes == 4, "its length");
  });
  CHECK(wrong == "");
}

TEST_CASE("a receive from any rank may wait for longer than a rank may be silent",
          "[group][device]") {
  ranks all{3, {.connect_at_once = true, .silence_max = 20ms}};
  const std::string wrong = all.run([](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_zeroed(8);
    if (g.rank() != 2) co_return;
    const auto send_late = [&]() -> task<> {
      co_await g.runtime().executor().sleep_for(100ms);
      expect(!g.why_failed(), "the group works");
      co_await g.send(memory.first(4), g.rank());
    };
    const auto [got, ignored] = co_await when_all(g.receive(memory.slice()), send_late());
    expect(got.size_bytes == 4, "its length");
  });
  CHECK(wrong == "");
}

TEST_CASE("what a rank sent before it left is there for the others", "[group][device]") {
  ranks all{3};
  const std::string wrong = all.run([](group& g) -> task<> {
    std::vector<int> value{int(g.rank())};
    co_await g.barrier();
    if (g.rank() != 0) co_await until([&] { return !g.failed_ranks().empty(); });
    co_await g.broadcast(std::span{value}, 0);
    expect(value[0] == 0, "the value of rank 0");
    if (g.rank() == 0) co_await std::exchange(g, group{}).leave();
  });
  CHECK(wrong == "");
}

TEST_CASE("a receive by tag that is dropped in the middle costs its message alone",
          "[group][device]") {
  for (unsigned rounds = 0; rounds < 40; ++rounds) {
    ranks all{2};
    const std::string wrong = all.run([rounds](group& g) -> task<> {
      local_mr memory = g.runtime().memory().allocate_zeroed(1 << 20);
      co_await g.barrier();
      const std::uint64_t before = g.counters().early;
      if (g.rank() == 0) {
        co_await g.send(memory.slice(), 1, 1);
        co_await g.send(memory.first(8), 1, 2);
        co_await g.send(memory.first(16), 1, 1);
        co_return co_await g.barrier();
      }
      {
        test::nobody waits;
        task<group::message> started = g.receive(memory.slice(), 0, 1);
        started.start(waits, {&g.runtime().executor(), {}});
        co_await until([&] { return g.counters().early > before; });
        for (unsigned n = 0; n < rounds; ++n) co_await others_run{};
      }
      // Dropped early enough, the message is for the next receive.
      auto next = co_await g.receive(memory.slice(), 0, 1);
      if (next.size_bytes == memory.size_bytes()) next = co_await g.receive(memory.slice(), 0, 1);
      expect(next.size_bytes == 16, "the third message");
      expect((co_await g.receive(memory.slice(), 0, 2)).size_bytes == 8, "the second message");
      co_await g.barrier();
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("a group may be dropped while its messages by tag are under way", "[group][device]") {
  for (unsigned rounds = 0; rounds < 40; ++rounds) {
    ranks all{2};
    const std::string wrong = all.run([rounds](group& g) -> task<> {
      local_mr memory = g.runtime().memory().allocate_zeroed(1 << 20);
      co_await g.barrier();
      const std::uint64_t before = g.counters().early;
      test::nobody waits;
      std::optional<task<>> sent;
      std::optional<task<group::message>> received;
      if (g.rank() == 0) {
        sent.emplace(g.send(memory.slice(), 1));
        sent->start(waits, {&g.runtime().executor(), {}});
      } else {
        received.emplace(g.receive(memory.slice()));
        received->start(waits, {&g.runtime().executor(), {}});
        co_await until([&] { return g.counters().early > before; });
      }
      for (unsigned n = 0; n < rounds; ++n) co_await others_run{};
      g = {};
    });
    CHECK(wrong == "");
  }
}

TEST_CASE("a send that is stopped before there is a link leaves its credit to others",
          "[group][device]") {
  constexpr unsigned window = detail::group_context::eager_window;
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_zeroed(8);
    if (g.rank() == 0) {
      unsigned stopped = 0;
      const auto send = [&]() -> task<> {
        const auto outcome = co_await as_result(with_timeout(g.send(memory.slice(), 1), 0s));
        stopped += code_of(outcome) == errc::timed_out ? 1 : 0;
      };
      co_await with_scope([&](scope& sending) -> task<> {
        for (unsigned n = 0; n < window; ++n) sending.spawn(send());
        co_return;
      });
      expect(stopped == window, "stopped: " + std::to_string(stopped));
      for (unsigned n = 0; n < window; ++n) co_await g.send(memory.first(4), 1);
      co_return co_await g.barrier();
    }
    co_await g.barrier();  // All have been sent: none waited for its receive.
    for (unsigned n = 0; n < window; ++n)
      expect((co_await g.receive(memory.slice())).size_bytes == 4, "those that were not stopped");
  });
  CHECK(wrong == "");
}

TEST_CASE("messages without bytes are bounded, and none of them takes a credit of others",
          "[group][device]") {
  constexpr unsigned most = detail::tagged_messages::announced_max;
  constexpr unsigned window = detail::group_context::eager_window;
  ranks all{2};
  const std::string wrong = all.run([](group& g) -> task<> {
    local_mr memory = g.runtime().memory().allocate_zeroed(8);
    for (unsigned round = 0; round < 2; ++round) {
      if (g.rank() == 0) {
        for (unsigned n = 0; n < most + window; ++n) co_await g.send({}, 1, n);
        expect(code_of(co_await as_result(g.send({}, 1))) == errc::limit_exceeded, "the limit");
      }
      co_await g.barrier();
      if (g.rank() == 1)
        for (unsigned n = most + window; n > 0; --n)
          expect((co_await g.receive({}, 0, n - 1)).size_bytes == 0, "an empty one");
      co_await g.barrier();
    }
    if (g.rank() == 0) {
      const auto send = [&] { return g.send(memory.slice(), 1); };
      co_await with_scope([&](scope& sending) -> task<> {
        for (unsigned n = 0; n < 2 * window; ++n) sending.spawn(send());
        co_return;
      });
      co_return co_await g.barrier();
    }
    co_await until([&] { return g.counters().early >= 2 * (most + window) + 2 * window; });
    for (unsigned n = 0; n < 2 * window; ++n) co_await g.receive(memory.slice());
    co_await g.barrier();
  });
  CHECK(wrong == "");
}

TEST_CASE("a rank that does not make its part of a group keeps no other waiting there",
          "[group][device]") {
  for (unsigned rounds = 0; rounds < 24; ++rounds) {
    const bool is_split = rounds % 2 == 0;
    ranks all{3};
    const auto outcomes = all.outcomes([rounds, is_split](group& g) -> task<> {
      const auto part_of = [&] { return is_split ? g.split(0) : g.duplicate(); };
      co_await g.barrier();
      if (g.rank() == 2) {
        test::nobody waits;
        task<group> started = part_of();
        started.start(waits, {&g.runtime().executor(), {}});
        for (unsigned n = 0; n < rounds; ++n) co_await others_run{};
        co_return;
      }
      group part = co_await part_of();
      local_mr memory = g.runtime().memory().allocate_zeroed(8);
      for (;;) co_await part.broadcast(memory.slice(), 2);
    });
    CHECK(outcomes[2].has_value());
    CHECK(code_of(outcomes[0]) == errc::rank_failed);
    CHECK(code_of(outcomes[1]) == errc::rank_failed);
  }
}

TEST_CASE("options that no group can have are refused by name", "[group][device]") {
  runtime rt{test::on_test_device()};
  const auto why = [&](const group_options& options) {
    const auto outcome = rt.run(as_result(group::join(rt, meeting::single(), options)));
    CHECK(code_of(outcome) == errc::limit_exceeded);
    return outcome.has_failure() ? outcome.failure().to_string() : "";
  };
  CHECK_THAT(why({.buffer_bytes = 47}), Catch::Contains("buffer_bytes is 47; the least is 128"));
  CHECK_THAT(why({.silence_max = 0s}), Catch::Contains("silence_max is 0 ns; the least is 10 ms"));
  CHECK_THAT(why({.silence_max = -1s}), Catch::Contains("silence_max is -1000000000 ns"));
}

TEST_CASE("two operations whose messages wait for each other's credits on all ranks end",
          "[group][device]") {
  constexpr std::size_t longest = 65'536;  // Many more messages than there are credits.
  ranks all{8, {.buffer_bytes = 512, .algorithms = "segment=256 broadcast=chain all_gather=ring"}};
  const std::string wrong = all.run([](group& g) -> task<> {
    for (unsigned round = 0; round < 4; ++round) {
      std::mt19937 numbers{round};
      std::vector<std::size_t> lengths;
      for (unsigned r = 0; r < g.size(); ++r)
        lengths.push_back(numbers() % 4 == 0 ? 0 : longest / (1 + numbers() % 4));
      const auto root = unsigned(numbers() % g.size());
      const auto begin_of = [&](unsigned r) {
        return std::accumulate(lengths.begin(), lengths.begin() + r, std::size_t{0});
      };
      local_mr data = g.runtime().memory().allocate_zeroed(longest);
      local_mr blocks = g.runtime().memory().allocate_zeroed(begin_of(g.size()));
      const local_mr_slice own = blocks.slice(begin_of(g.rank()), lengths[g.rank()]);
      if (g.rank() == root) std::ranges::fill(data.bytes(), std::byte{7});
      std::ranges::fill(own.bytes(), std::byte(g.rank() + 1));
      co_await with_scope([&](scope& running) -> task<> {
        running.spawn(g.broadcast(data.slice(), root));
        // Each rank begins the second operation at another stage of the first.
        numbers.seed(round + g.rank() * 1000);
        for (auto n = numbers() % 20; n > 0; --n) co_await others_run{};
        running.spawn(g.all_gather_uneven(own, blocks.slice(), lengths));
      });
      expect(data.bytes().back() == std::byte{7}, "the root's last byte");
      for (unsigned r = 0; r < g.size(); ++r)
        if (lengths[r] != 0)
          expect(blocks.bytes()[begin_of(r + 1) - 1] == std::byte(r + 1), "a block's last byte");
    }
  });
  CHECK(wrong == "");
}
