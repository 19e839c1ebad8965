#include "../../lib/agent/id_table.hpp"

#include <catch2/catch.hpp>

#include <set>

using namespace cordma;

TEST_CASE("a number finds its thing until it is erased, and is not used again soon", "[agent]") {
  id_table<int> table{2};
  int one = 1;
  int two = 2;
  int three = 3;
  const std::uint64_t first = table.insert(one);
  const std::uint64_t second = table.insert(two);
  CHECK(first != 0);
  CHECK(table.find(first) == &one);
  CHECK(table.find(second) == &two);
  CHECK(table.insert(three) == 0);
  CHECK(table.size() == 2);
  table.erase(first);
  CHECK(table.find(first) == nullptr);
  std::set<std::uint64_t> seen{first, second};
  for (int n = 0; n < 1000; ++n) {
    const std::uint64_t id = table.insert(three);
    CHECK(seen.insert(id).second);
    CHECK(table.find(id) == &three);
    table.erase(id);
  }
  CHECK(table.find(second) == &two);
}

TEST_CASE("numbers of nobody find nothing", "[agent]") {
  id_table<int> table{2};
  int one = 1;
  const std::uint64_t id = table.insert(one);
  for (const std::uint64_t wrong : {std::uint64_t{0}, id + 1, id + (std::uint64_t{1} << 32),
                                    id & 0xffff'ffff, ~std::uint64_t{0}})
    CHECK(table.find(wrong) == nullptr);
}
