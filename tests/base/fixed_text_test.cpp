#include <cordma/detail/base/fixed_text.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <type_traits>

using cordma::fixed_text;

static_assert(std::is_trivially_copyable_v<fixed_text<8>>);
static_assert(fixed_text<8>{"abc"}.empty() == false);

TEST_CASE("a fixed text keeps what fits", "[base]") {
  CHECK(fixed_text<8>{}.empty());
  CHECK(fixed_text<8>{""}.view().empty());
  CHECK(fixed_text<8>{"12345678"}.view() == "12345678");
  const std::string source = "abc";
  CHECK(fixed_text<8>{source}.view() == "abc");
}

TEST_CASE("a fixed text that is cut says so", "[base]") {
  CHECK(fixed_text<8>{"123456789"}.view() == "12345...");
  CHECK(fixed_text<4>{std::string(1000, 'x')}.view() == "x...");
}
