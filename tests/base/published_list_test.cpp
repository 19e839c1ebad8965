#include "base/published_list.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <thread>
#include <vector>

using namespace cordma;

namespace {

std::vector<int> items(const detail::published_list<int>& list) {
  std::vector<int> all;
  list.for_each([&](int item) { all.push_back(item); });
  return all;
}

}  // namespace

TEST_CASE("what is published is seen, the newest first", "[base]") {
  detail::published_list<int> list;
  CHECK(items(list).empty());
  const std::array<int, 3> numbers{1, 2, 3};
  for (const int& n : numbers) list.add(n);
  CHECK(items(list) == std::vector{3, 2, 1});
}

TEST_CASE("a list is read while it grows", "[base]") {
  constexpr std::size_t all = 1000;
  std::vector<int> numbers(all);
  detail::published_list<int> list;
  std::thread adder{[&] {
    for (std::size_t n = 0; n < all; ++n) {
      numbers[n] = int(n);
      list.add(numbers[n]);
    }
  }};
  bool is_in_order = true;
  for (std::size_t seen = 0; seen < all;) {
    const std::vector<int> now = items(list);
    for (std::size_t n = 0; n < now.size(); ++n) is_in_order &= now[n] == int(now.size() - 1 - n);
    seen = now.size();
  }
  adder.join();
  CHECK(is_in_order);
}
