#include <cordma/group/group.hpp>

#include "random_operation.hpp"
#include "ranks.hpp"
#include "support/device.hpp"
#include "support/soak.hpp"

#include <cordma/coro/scope.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

using namespace cordma;
using test::random_operation;
using test::ranks;

namespace {

/// Schedules that one set of ranks does.
constexpr unsigned schedules_each = 50;
constexpr std::size_t groups = 5;

/// Changes of the table by which rare algorithms come often.
constexpr std::array<const char*, 8> tables{
    "",
    "segment=256 broadcast=chain reduce=rabenseifner",
    "broadcast=scatter_all_gather all_reduce=ring all_gather=ring",
    "all_reduce=rabenseifner scatter=linear gather=linear",
    "reduce_scatter=pairwise all_to_all=pairwise segment=1024",
    "reduce_scatter=ring broadcast=binomial all_reduce=recursive_doubling",
    "all_to_all=bruck all_gather=bruck scatter=binomial gather=binomial",
    "segment=4K",
};

/// One operation of a schedule, in one of the groups.
struct step {
  std::size_t in;
  random_operation what;
};

/// One rank's groups: all ranks, the same again, halves, thirds in the reverse order, and some.
task<std::vector<group>> part_of(group& g) {
  std::vector<group> all;
  all.push_back(co_await g.duplicate());
  all.push_back(co_await g.split(g.rank() % 2));
  all.push_back(co_await g.split(g.rank() / 3, 100 - g.rank()));
  all.push_back(co_await g.split(g.rank() % 4 == 0 ? std::nullopt : std::optional{9u}));
  co_return all;
}

/// Begins all operations of a schedule that the rank has a part in, and waits for them.
task<> run_schedule(group& g, std::vector<group>& parts, const std::vector<step>& schedule,
                    std::uint32_t delays) {
  std::mt19937 numbers{delays + g.rank()};
  co_await with_scope([&](scope& running) -> task<> {
    for (const step& one : schedule) {
      group& in = one.in == 0 ? g : parts[one.in - 1];
      if (numbers() % 4 == 0) co_await g.runtime().executor().sleep_for(duration{});
      if (in) running.spawn(one.what.run(in));
    }
  });
}

/// Runs schedules on some ranks, until one fails. Returns what is wrong.
std::string run_schedules(std::uint32_t seed, unsigned count) {
  std::mt19937 numbers{seed};
  group_options options;
  options.buffer_bytes = numbers() % 2 == 0 ? 512 : 8192;
  options.algorithms = tables[numbers() % tables.size()];
  options.reproducible = numbers() % 4 == 0;
  options.connect_at_once = numbers() % 4 == 0;
  const auto size = unsigned(1 + numbers() % 9);
  const auto per_host = unsigned(numbers() % 4);
  std::vector<std::vector<step>> schedules(count);
  for (std::vector<step>& one : schedules)
    for (auto n = 1 + numbers() % 8; n > 0; --n)
      one.push_back({numbers() % groups, random_operation::draw(numbers, options.buffer_bytes)});
  ranks all{size, options, per_host};
  return all.run([&](group& g) -> task<> {
    std::vector<group> parts = co_await part_of(g);
    std::uint32_t delays = seed;
    for (const std::vector<step>& one : schedules) {
      co_await run_schedule(g, parts, one, delays += 100);
      // Some groups end, and others like them begin.
      if (one.size() == 8) parts = co_await part_of(g);
    }
  });
}

void check_schedules(std::uint64_t count, std::uint64_t seed) {
  for (std::uint64_t n = 0; n < count; n += schedules_each) {
    const auto own = std::uint32_t(seed + n);
    INFO("seed " << own);
    const std::string wrong =
        run_schedules(own, unsigned(std::min<std::uint64_t>(schedules_each, count - n)));
    REQUIRE(wrong == "");
  }
}

}  // namespace

TEST_CASE("random operations in random groups, several at once, give what a plain reference gives",
          "[group][device]") {
  check_schedules(test::is_rxe() ? 20 : 100, 1);
}

TEST_CASE("any number of random schedules of operations give what a plain reference gives",
          "[.soak-groups][group][device]") {
  check_schedules(test::soak::count(100'000), test::soak::seed());
}
