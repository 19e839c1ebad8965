#include "sim/callers.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <string>

using namespace cordma;
using sim::detail::caller_behind;

namespace {

std::string asked;

[[gnu::noinline]] void note_caller(int /*number*/) {
  const auto* const found = caller_behind(__builtin_return_address(0));
  asked = found == nullptr ? "nobody" : found->text();
}

[[gnu::noinline]] void asks_directly() {
  note_caller(1);
  asm volatile("");  // No tail call.
}

[[gnu::noinline]] void asks_by_an_algorithm() {
  const std::array<int, 3> numbers{3, 1, 2};
  std::for_each(numbers.begin(), numbers.end(), &note_caller);
  asm volatile("");
}

}  // namespace

TEST_CASE("the caller of a function is named", "[sim]") {
  asks_directly();
  CHECK(asked == "(anonymous namespace)::asks_directly()");
}

TEST_CASE("a caller is the first behind the language's library", "[sim]") {
  asks_by_an_algorithm();
  CHECK(asked == "(anonymous namespace)::asks_by_an_algorithm()");
}

TEST_CASE("nobody called from where no function returns to", "[sim]") {
  CHECK(caller_behind(nullptr) == nullptr);
}
