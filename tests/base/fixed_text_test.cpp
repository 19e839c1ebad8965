#include <cordma/base/fixed_text.hpp>

#include <catch2/catch.hpp>
#include <type_traits>

static_assert(std::is_trivially_copyable_v<cordma::fixed_text<16>>);

TEST_CASE("a fixed text keeps what fits, whole", "[base]") {
  CHECK(cordma::fixed_text<8>{}.empty());
  CHECK(cordma::fixed_text<8>{"1234567"}.view() == "1234567");
  CHECK(cordma::fixed_text<8>{"12345678"}.view() == "12345678");
}

TEST_CASE("a fixed text that is too long ends in dots", "[base]") {
  CHECK(cordma::fixed_text<8>{"123456789"}.view() == "12345...");
}
