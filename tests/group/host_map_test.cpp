#include "group/host_map.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace cordma::detail;

TEST_CASE("hosts are numbered in the order of their lowest ranks", "[group]") {
  const std::vector<std::uint64_t> hosts{9, 4, 9, 4, 4, 6};
  const host_map map{hosts};
  CHECK(map.count() == 3);
  CHECK(std::ranges::equal(map.ranks_of(0), std::vector<unsigned>{0, 2}));
  CHECK(std::ranges::equal(map.ranks_of(1), std::vector<unsigned>{1, 3, 4}));
  CHECK(std::ranges::equal(map.ranks_of(2), std::vector<unsigned>{5}));
  CHECK(map.host_of(4) == 1);
  CHECK(map.index_of(4) == 2);
  CHECK(map.index_of(5) == 0);
}

TEST_CASE("two levels pay where hosts have two ranks on average", "[group]") {
  const auto pays = [](std::vector<std::uint64_t> hosts) {
    return host_map{hosts}.has_two_levels();
  };
  CHECK(pays({1, 1, 2, 2}));
  CHECK(pays({1, 1, 1, 2}));
  CHECK_FALSE(pays({1, 1, 2}));
  CHECK_FALSE(pays({1, 1, 1, 1}));
  CHECK_FALSE(pays({1, 2, 3, 4}));
}

TEST_CASE("hosts are regular if each has as many consecutive ranks", "[group]") {
  const auto is_regular = [](std::vector<std::uint64_t> hosts) {
    return host_map{hosts}.is_regular();
  };
  CHECK(is_regular({3, 3, 1, 1}));
  CHECK_FALSE(is_regular({3, 1, 3, 1}));
  CHECK_FALSE(is_regular({3, 3, 1}));
}
