#include <cordma/detail/base/assert.hpp>

#include "support/aborts.hpp"

#include <catch2/catch.hpp>

TEST_CASE("a broken contract prints where, what and why, and aborts", "[base]") {
  const auto death = support::run_in_child([] { CORDMA_ASSERT(1 + 1 == 3, "sums must hold"); });
  CHECK(death.aborted);
  CHECK(death.text.find("assert_test.cpp:") != std::string::npos);
  CHECK(death.text.find("contract broken: 1 + 1 == 3 (sums must hold)") != std::string::npos);
}

TEST_CASE("a contract that holds evaluates its condition once", "[base]") {
  int evaluated = 0;
  CORDMA_ASSERT(++evaluated == 1, "evaluated twice");
  CHECK(evaluated == 1);
}
