#include "../../lib/base/spare_memory.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstddef>
#include <optional>

using cordma::detail::spare_memory;
using cordma::detail::spare_memory_scope;

TEST_CASE("a thread has spare memory within a scope, the inner one's", "[base]") {
  CHECK(spare_memory::current() == nullptr);
  spare_memory outer, inner;
  {
    const spare_memory_scope first{outer};
    CHECK(spare_memory::current() == &outer);
    {
      const spare_memory_scope second{inner};
      CHECK(spare_memory::current() == &inner);
    }
    CHECK(spare_memory::current() == &outer);
  }
  CHECK(spare_memory::current() == nullptr);
}

TEST_CASE("spare memory is given once, by its size", "[base]") {
  spare_memory spare;
  std::array<std::byte, 8> one;
  REQUIRE(spare.give(one.data(), one.size()));
  CHECK(spare.take(4) == nullptr);
  CHECK(spare.take(8) == one.data());
  CHECK(spare.take(8) == nullptr);
}

TEST_CASE("spare memory is refused when there is too much", "[base]") {
  spare_memory spare;
  std::array<std::byte, 8> one;
  std::size_t kept = 0;
  while (kept < 1000 && spare.give(one.data(), one.size())) ++kept;
  CHECK(kept == 64);
  REQUIRE(spare.take(8) == one.data());
  CHECK(spare.give(one.data(), one.size()));
}

TEST_CASE("a spare arena is given once, and refused when there are too many", "[base]") {
  spare_memory spare;
  CHECK(spare.take_arena() == std::nullopt);
  unsigned kept = 0;
  while (kept < 1000 && spare.give_arena(kept)) ++kept;
  CHECK(kept == 64);
  CHECK(spare.take_arena() == 63u);
  CHECK(spare.take_arena() == 62u);
}
