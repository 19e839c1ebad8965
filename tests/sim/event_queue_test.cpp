#include "sim/event_queue.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;
using sim::detail::event_kind;
using sim::detail::event_queue;

TEST_CASE("events come by their time, then by their order, then as they were made", "[sim]") {
  event_queue queue;
  const auto push = [&](duration at, std::uint64_t order, std::uint32_t number) {
    queue.push(
        {.at = time_point{at}, .order = order, .number = number, .kind = event_kind::device_step});
  };
  push(2ns, 0, 3);
  push(1ns, 9, 1);
  push(2ns, 5, 4);
  push(2ns, 5, 5);
  push(1ns, 10, 2);
  push(3ns, 0, 8);
  push(2ns, 5, 6);
  push(2ns, UINT64_MAX, 7);
  for (std::uint32_t n = 1; n <= 8; ++n) {
    REQUIRE_FALSE(queue.empty());
    CHECK(queue.pop().number == n);
  }
  CHECK(queue.empty());
}

TEST_CASE("the queue gives the function of each call once, with what it captured", "[sim]") {
  event_queue queue;
  std::vector<int> called;
  auto counted = std::make_shared<int>(0);
  for (const int n : {1, 2, 3})
    queue.push({.at = time_point{n * 1ns}}, [&called, n, counted] { called.push_back(n); });
  CHECK(counted.use_count() == 4);
  while (!queue.empty()) {
    const sim::detail::event e = queue.pop();
    CHECK(e.kind == event_kind::call);
    queue.take_call(e)();
  }
  CHECK(called == std::vector{1, 2, 3});
  CHECK(counted.use_count() == 1);
}

TEST_CASE("the memory of a call that was taken is used again", "[sim]") {
  event_queue queue;
  std::set<std::uint32_t> used;
  int called = 0;
  for (int n = 0; n < 100; ++n) {
    for (int k = 0; k < 2; ++k) queue.push({.at = time_point{n * 1ns}}, [&] { ++called; });
    for (int k = 0; k < 2; ++k) {
      const sim::detail::event e = queue.pop();
      used.insert(e.number);
      queue.take_call(e)();
    }
  }
  CHECK(called == 200);
  CHECK(used.size() == 2);
}
