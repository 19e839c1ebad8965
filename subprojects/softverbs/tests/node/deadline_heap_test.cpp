#include "node/deadline_heap.hpp"

#include <catch2/catch.hpp>

#include <map>
#include <random>

using namespace softverbs;
using time_of = deadline_heap::time;

TEST_CASE("deadlines come due in order, the earlier of two wins, a forgotten one never comes",
          "[node]") {
  deadline_heap heap;
  std::map<std::uint32_t, time_of> plain;
  std::minstd_rand engine{1};
  const auto random = [&] { return static_cast<std::uint32_t>(engine()); };
  for (int n = 0; n < 50'000; ++n) {
    const std::uint32_t index = random() % 300;
    const time_of when{std::chrono::nanoseconds{random() % 100'000}};
    switch (random() % 4) {
      case 0:
        heap.forget(index);
        plain.erase(index);
        break;
      case 1: {
        const auto first =
            std::min_element(plain.begin(), plain.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        const bool due = first != plain.end() && first->second <= when;
        REQUIRE(heap.next() == (first == plain.end() ? time_of::max() : first->second));
        const std::uint32_t taken = heap.take_due(when);
        REQUIRE((taken != index_set::none) == due);
        if (due) {
          REQUIRE(plain.at(taken) == first->second);
          plain.erase(taken);
        }
        break;
      }
      default:
        heap.set(index, when);
        if (const auto [found, fresh] = plain.emplace(index, when); !fresh)
          found->second = std::min(found->second, when);
    }
  }
}
