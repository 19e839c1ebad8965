#include "perf/collective_plan.hpp"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>
#include <vector>

using namespace perf;
using namespace std::string_literals;
using Catch::Matchers::Contains;
using cordma::detail::algorithm_table;
using cordma::detail::host_map;

namespace {

constexpr std::uint64_t gib = std::uint64_t{1} << 30;

collectives_options asked(std::vector<collective_kind> operations, std::vector<std::uint64_t> sizes,
                          std::vector<std::string> algorithms = {}) {
  return {.operations = std::move(operations),
          .sizes = std::move(sizes),
          .algorithms = std::move(algorithms),
          .memory_bytes_max = gib};
}

std::vector<planned_case> plan_for(const collectives_options& o, unsigned ranks = 4,
                                   const host_map* hosts = nullptr) {
  const algorithm_table table;
  return make_plan(o, {.count = ranks, .hosts = hosts, .table = table});
}

std::string chosen(const planned_case& c) { return names_of(c.chosen()); }

}  // namespace

TEST_CASE("each operation and length is planned with the table's algorithm", "[tools]") {
  using enum collective_kind;
  const auto plan = plan_for(asked({all_reduce, barrier}, {64, 65536}));
  REQUIRE(plan.size() == 3);
  CHECK(plan[0].of(4) == collective_case{.kind = all_reduce, .size_bytes = 64, .ranks = 4});
  CHECK(chosen(plan[0]) == "recursive_doubling");
  CHECK(plan[1].size_bytes == 65536);
  CHECK(chosen(plan[1]) == "rabenseifner");
  CHECK(plan[2].of(4) == collective_case{.kind = barrier, .size_bytes = 0, .ranks = 4});
  CHECK(plan_for(asked({}, {64})).size() == 10);
}

TEST_CASE("lengths are made of whole elements and equal blocks, and none comes twice", "[tools]") {
  using enum collective_kind;
  const auto plan = plan_for(asked({all_gather, reduce, broadcast}, {6, 7, 13}), 3);
  std::vector<std::uint64_t> sizes;
  for (const planned_case& c : plan) sizes.push_back(c.size_bytes);
  CHECK(sizes == std::vector<std::uint64_t>{12, 24, 8, 16, 6, 7, 13});
}

TEST_CASE("algorithms are planned by name, for the operations that have them", "[tools]") {
  using enum collective_kind;
  const auto plan = plan_for(asked({}, {64}, {"ring", "bruck"}));
  REQUIRE(plan.size() == 4);
  CHECK(plan[0].of(4).kind == all_gather);
  CHECK(chosen(plan[0]) == "bruck, ring");
  CHECK(chosen(plan[1]) == "ring");
  CHECK(plan[3].of(4).kind == all_to_all);
  CHECK(chosen(plan[3]) == "bruck");
}

TEST_CASE("tuning takes all algorithms that can run, where there is a choice", "[tools]") {
  using enum collective_kind;
  collectives_options o = asked({}, {64});
  o.is_tuning = true;
  const auto plan = plan_for(o);
  REQUIRE(plan.size() == 8);  // All but barrier and scan.
  CHECK(chosen(plan[0]) == "binomial, chain, scatter_all_gather");
  const std::vector<std::uint64_t> numbers{1, 1, 2, 2};
  const host_map hosts{numbers};
  const auto on_two_hosts = plan_for(o, 4, &hosts);
  REQUIRE(on_two_hosts.size() == 9);
  CHECK(chosen(on_two_hosts[0]) == "dissemination, two_level");
  o.operations = {scan};
  CHECK_THROWS_WITH(plan_for(o), Contains("--tune: only one algorithm"));
}

TEST_CASE("an algorithm that cannot run on these ranks is refused by name", "[tools]") {
  using enum collective_kind;
  CHECK_THROWS_WITH(plan_for(asked({reduce}, {64}, {"two_level"})),
                    Contains("--algorithm 'two_level': reduce has it for several hosts"));
  const std::vector<std::uint64_t> numbers{1, 1, 2, 2};
  const host_map hosts{numbers};
  CHECK(plan_for(asked({reduce}, {64}, {"two_level"}), 4, &hosts).size() == 1);
}

TEST_CASE("no case takes more memory than there may be", "[tools]") {
  using enum collective_kind;
  CHECK(plan_for(asked({broadcast}, {gib})).size() == 1);
  CHECK_THROWS_WITH(plan_for(asked({all_to_all}, {gib / 4})),
                    Contains("--sizes 256M: all_to_all takes 2G on a rank, and --memory gives 1G"));
  const collective_case scattered{.kind = scatter, .size_bytes = 64, .ranks = 4};
  CHECK(scattered.in_bytes(0) == 256);
  CHECK(scattered.in_bytes(1) == 0);
  CHECK(scattered.out_bytes(1) == 64);
  CHECK(scattered.memory_bytes() == 320);
}

TEST_CASE("the bytes that must move are those of the busiest rank", "[tools]") {
  using enum collective_kind;
  const auto moved = [](collective_kind kind) {
    return collective_case{.kind = kind, .size_bytes = 4096, .ranks = 4}.moved_bytes();
  };
  CHECK(moved(barrier) == 0);
  CHECK(moved(broadcast) == 4096);
  CHECK(moved(scatter) == 3 * 4096);
  CHECK(moved(all_to_all) == 3 * 4096);
  CHECK(moved(all_gather) == 3 * 1024);
  CHECK(moved(reduce_scatter) == 3 * 1024);
  CHECK(moved(reduce) == 4096);
  CHECK(moved(all_reduce) == 2 * 3 * 1024);
}

TEST_CASE("options of collectives out of bounds are refused, with the value and what there is",
          "[tools]") {
  using enum collective_kind;
  CHECK_NOTHROW(check(asked({}, {4, gib})));
  CHECK_THROWS_WITH(check(asked({}, {3})), "--sizes 3: it goes from 4 to 1G");
  CHECK_THROWS_WITH(check(asked({}, {2 * gib})), Contains("--sizes 2G"));
  CHECK_THROWS_WITH(check(asked({scatter}, {64}, {"fly"})),
                    "--algorithm 'fly': scatter has binomial, linear");
  CHECK_THROWS_WITH(check(asked({scatter, scan}, {64}, {"linear"})),
                    "--algorithm 'linear': scan has recursive_doubling");
  CHECK_THROWS_WITH(check(asked({}, {64}, {"ring", "fly"})),
                    Contains("--algorithm 'fly': barrier has dissemination, two_level; broadcast"));
  collectives_options o = asked({}, {64}, {"ring"});
  o.is_tuning = true;
  CHECK_THROWS_WITH(check(o), Contains("--algorithm 'ring': --tune measures all"));
  o = asked({}, {64});
  o.ranks = 65;
  CHECK_THROWS_WITH(check(o), "--ranks 65: it goes from 2 to 64");
  CHECK_THROWS_WITH(parse_collective("fly"),
                    Contains("--operation 'fly': it is one of barrier, broadcast"));
}

TEST_CASE("a plan that no rank of ours makes is refused", "[tools]") {
  using enum collective_kind;
  const planned_case good = plan_for(asked({all_gather}, {64})).front();
  CHECK_NOTHROW(check(std::vector{good}, 4));
  const auto refuses = [&good](auto change) {
    planned_case bad = good;
    change(bad);
    try {
      check(std::vector{good, bad}, 4);
    } catch (const std::runtime_error& e) {
      return std::string{e.what()}.ends_with("start the same cordma-perf on all ranks");
    }
    return false;
  };
  using plan = planned_case&;
  CHECK(refuses([](plan p) { p.kind = 10; }));
  CHECK(refuses([](plan p) { p.reserved = 1; }));
  CHECK(refuses([](plan p) { p.algorithms = 0; }));
  CHECK(refuses([](plan p) { p.algorithms = 1; }));  // A barrier's.
  CHECK(refuses([](plan p) { p.algorithms |= std::uint64_t{1} << 63; }));
  CHECK(refuses([](plan p) { p.size_bytes = 66; }));
  CHECK(refuses([](plan p) { p.size_bytes = 8 * gib; }));
}
