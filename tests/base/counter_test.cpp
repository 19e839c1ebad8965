#include <cordma/detail/base/counter.hpp>

#include <catch2/catch.hpp>

#include <latch>
#include <thread>

using namespace cordma;

TEST_CASE("a counter goes up and down", "[base]") {
  counter c;
  CHECK(c.value() == 0);
  c.add();
  c.add(41);
  CHECK(c.value() == 42);
  c.subtract(2);
  CHECK(c.value() == 40);
  c.set(7);
  CHECK(c.value() == 7);
}

TEST_CASE("what one thread counts another reads meanwhile, never falling", "[base]") {
  constexpr std::uint64_t all = 100'000;
  counter c;
  std::latch begin{2};
  std::thread writer{[&] {
    begin.arrive_and_wait();
    for (std::uint64_t n = 0; n < all; ++n) c.add();
  }};
  begin.arrive_and_wait();
  bool has_fallen = false;
  for (std::uint64_t before = 0; before < all;) {
    const std::uint64_t now = c.value();
    has_fallen |= now < before;
    before = now;
  }
  writer.join();
  CHECK_FALSE(has_fallen);
  CHECK(c.value() == all);
}
