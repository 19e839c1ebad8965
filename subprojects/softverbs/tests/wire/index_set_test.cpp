#include "wire/index_set.hpp"

#include <catch2/catch.hpp>

#include <random>
#include <set>

using namespace softverbs;

TEST_CASE("an index set finds what an ordinary set finds", "[wire]") {
  index_set fast;
  std::set<std::uint32_t> plain;
  std::minstd_rand engine{1};
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int n = 0; n < 20'000; ++n) {
    // Sparse at first, then dense in one corner.
    const std::uint32_t index = random() % (n < 10'000 ? indices_max : 200);
    if (random() % 3 == 0) {
      fast.erase(index);
      plain.erase(index);
    } else {
      fast.insert(index);
      plain.insert(index);
    }
    const std::uint32_t from = random() % indices_max;
    const auto found = plain.lower_bound(from);
    REQUIRE(fast.next(from) == (found == plain.end() ? index_set::none : *found));
    REQUIRE(fast.contains(index) == (plain.count(index) == 1));
    REQUIRE(fast.empty() == plain.empty());
  }
  CHECK(fast.next(indices_max) == index_set::none);
  CHECK(fast.next_around(indices_max) == *plain.begin());
  fast.clear();
  CHECK(fast.empty());
  CHECK(fast.next_around(5) == index_set::none);
}

TEST_CASE("a set that was filled has all indices", "[wire]") {
  index_set all;
  all.fill();
  std::uint32_t count = 0;
  for (std::uint32_t index = all.next(0); index != index_set::none; index = all.next(index + 1))
    CHECK(index == count++);
  CHECK(count == indices_max);
  for (std::uint32_t index = 0; index < indices_max; ++index) all.erase(index);
  CHECK(all.empty());
}
