#include "sim/coverage.hpp"

#include <catch2/catch.hpp>

#include <memory>

using namespace cordma;
using sim::detail::coverage;

TEST_CASE("a coverage counts the states that differ", "[sim]") {
  const auto states = std::make_unique<coverage>();
  CHECK(states->count() == 0);
  for (std::uint64_t n = 0; n < 1000; ++n) states->mark(n * n * n);
  const std::size_t count = states->count();
  CHECK(count > 990);  // Few of them share a bit.
  CHECK(count <= 1000);
  for (std::uint64_t n = 0; n < 1000; ++n) states->mark(n * n * n);
  CHECK(states->count() == count);
}

TEST_CASE("a coverage adds the states of another one", "[sim]") {
  const auto one = std::make_unique<coverage>();
  const auto other = std::make_unique<coverage>();
  for (const std::uint64_t n : {1u, 2u, 3u}) one->mark(n);
  for (const std::uint64_t n : {3u, 4u}) other->mark(n);
  one->add(*other);
  CHECK(one->count() == 4);
  CHECK(other->count() == 2);
}
