#include "base/time_text.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;

TEST_CASE("a length of time is printed in milliseconds", "[base]") {
  CHECK(to_text(5s) == "5000 ms");
  CHECK(to_text(24h) == "86400000 ms");
  CHECK(to_text(50us) == "0.05 ms");
  CHECK(to_text(-1ms) == "-1 ms");
  CHECK(to_text(0ms) == "0 ms");
}
