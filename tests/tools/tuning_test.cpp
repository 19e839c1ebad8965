#include "perf/tuning.hpp"

#include "perf/collective_report.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

using namespace perf;
using namespace std::string_literals;
using cordma::detail::algorithm_table;

namespace {

constexpr unsigned rank_count = 4;

/// The time of each algorithm of an operation, by name.
using times = std::map<std::string, double>;

collective_result timed(collective_kind kind, std::uint64_t size_bytes, const times& us,
                        double spread = 0) {
  const collective_case what = collective_case::fitting(kind, size_bytes, rank_count);
  collective_result r{
      .what = what,
      .builtin = &algorithm_table{}.choose(rank_count, nullptr, what.call_without_memory())};
  for (const algorithm* const a : algorithms_of(kind))
    if (us.contains(a->name))
      r.times.push_back({.by = a,
                         .us = us.at(a->name),
                         .us_low = us.at(a->name) * (1 - spread),
                         .us_high = us.at(a->name) * (1 + spread)});
  return r;
}

/// The built-in choice is binomial up to 16K, then chain.
collective_result broadcast_of(std::uint64_t size_bytes, double binomial, double chain,
                               double spread = 0) {
  return timed(collective_kind::broadcast, size_bytes, {{"binomial", binomial}, {"chain", chain}},
               spread);
}

std::string text_of(const std::vector<collective_result>& results) {
  return table_text(find_tuned_ranges(results), results, nullptr);
}

}  // namespace

TEST_CASE("a table that is the fastest stays", "[tools]") {
  CHECK(text_of({broadcast_of(64, 1, 2), broadcast_of(16384, 1, 2), broadcast_of(65536, 2, 1)})
            .empty());
  CHECK(text_of({}).empty());
}

TEST_CASE("another algorithm is named for the lengths where it is faster", "[tools]") {
  CHECK(text_of({broadcast_of(64, 2, 1), broadcast_of(1024, 2, 1), broadcast_of(16384, 1, 2)}) ==
        "broadcast=chain@..1K:4..4");
  CHECK(text_of({broadcast_of(64, 1, 2), broadcast_of(32768, 1, 2), broadcast_of(65536, 1, 2),
                 broadcast_of(131072, 2, 1)}) == "broadcast=binomial@32K..64K:4..4");
  const auto ranges =
      find_tuned_ranges({broadcast_of(64, 4, 1), broadcast_of(1024, 1.44, 1.44 / 4)});
  REQUIRE(ranges.size() == 1);
  CHECK(ranges.front().by->name == "chain"s);
  CHECK(ranges.front().gain == Approx(4));
}

TEST_CASE("a faster algorithm follows another without a gap, and each operation has its own",
          "[tools]") {
  using enum collective_kind;
  const auto all_reduce_in = [](std::uint64_t size, double doubling, double rabenseifner,
                                double ring) {
    return timed(
        all_reduce, size,
        {{"recursive_doubling", doubling}, {"rabenseifner", rabenseifner}, {"ring", ring}});
  };
  // Lengths may come in any order.
  const std::vector<collective_result> results{
      all_reduce_in(65536, 9, 5, 2), all_reduce_in(64, 9, 3, 9), all_reduce_in(1024, 9, 3, 9),
      broadcast_of(64, 3, 1)};
  CHECK(text_of(results) ==
        "broadcast=chain@..64:4..4,all_reduce=rabenseifner@..1K:4..4,all_reduce=ring@1K..64K:4..4");
}

TEST_CASE("a gain that is small, or doubtful, changes nothing", "[tools]") {
  CHECK(text_of({broadcast_of(64, 1.02, 1), broadcast_of(128, 1.02, 1), broadcast_of(256, 1.02, 1),
                 broadcast_of(512, 1.02, 1)})
            .empty());
  CHECK(text_of({broadcast_of(64, 1.07, 1)}).empty());
  CHECK_FALSE(text_of({broadcast_of(64, 1.1, 1)}).empty());
  CHECK(text_of({broadcast_of(64, 1.1, 1, 0.2)}).empty());
}

TEST_CASE("one length that is slower does not divide a range", "[tools]") {
  const std::vector<collective_result> results{broadcast_of(64, 2, 1), broadcast_of(128, 1.04, 1),
                                               broadcast_of(256, 1, 1.01), broadcast_of(512, 2, 1)};
  CHECK(text_of(results) == "broadcast=chain@..512:4..4");
}

TEST_CASE("an operation without a length is changed for all of them", "[tools]") {
  const std::vector<std::uint64_t> numbers{1, 1, 2, 2};
  const cordma::detail::host_map hosts{numbers};
  collective_result r =
      timed(collective_kind::barrier, 0, {{"dissemination", 1}, {"two_level", 2}});
  r.builtin = &algorithm_table{}.choose(rank_count, &hosts, r.what.call_without_memory());
  REQUIRE(r.builtin->name == "two_level"s);
  const std::vector<collective_result> results{r};
  CHECK(table_text(find_tuned_ranges(results), results, &hosts) == "barrier=dissemination:4..4");
}

TEST_CASE("the text of a table is read back before anybody sees it", "[tools]") {
  const std::vector<collective_result> results{broadcast_of(64, 2, 1)};
  std::vector<tuned_range> ranges = find_tuned_ranges(results);
  REQUIRE(ranges.size() == 1);
  // These ranks are on one host, and cannot run two_level.
  const auto all = algorithms_of(collective_kind::broadcast);
  ranges.front().by = *std::ranges::find(all, "two_level"s, &algorithm::name);
  CHECK_THROWS_WITH(table_text(ranges, results, nullptr),
                    Catch::Contains("\"broadcast=two_level@..64:4..4\" chooses binomial"));
}

TEST_CASE("a text that is too long for a program's options says where it fits", "[tools]") {
  const std::vector<collective_result> results{broadcast_of(64, 2, 1)};
  tuned_table table{.ranges = find_tuned_ranges(results)};
  table.text = table_text(table.ranges, results, nullptr);
  CHECK_THAT(tuned_rows(table, results),
             Catch::Contains("For group_options::algorithms, or CORDMA_COLLECTIVES, of 4 ranks") &&
                 Catch::EndsWith("\nbroadcast=chain@..64:4..4\n"));
  while (table.text.size() <= 480) table.text += ",broadcast=chain@..64:4..4";
  CHECK_THAT(tuned_rows(table, results),
             Catch::Contains("For CORDMA_COLLECTIVES (group_options::algorithms is too short)"));
}
