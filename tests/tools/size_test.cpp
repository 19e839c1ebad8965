#include "perf/size.hpp"

#include <catch2/catch.hpp>

#include <stdexcept>
#include <string>

using namespace perf;
using Catch::Matchers::Contains;

TEST_CASE("sizes are numbers, or so many KiB, MiB or GiB", "[tools]") {
  CHECK(parse_size("--size", "8") == 8);
  CHECK(parse_size("--size", "64K") == 65536);
  CHECK(parse_size("--size", "3m") == 3 << 20);
  CHECK(parse_size("--size", "1G") == 1u << 30);
  CHECK(parse_size("--size", "0") == 0);
  CHECK(parse_size("--size", "9223372036854775808") == std::uint64_t{1} << 63);
}

TEST_CASE("what is no size is named in the error", "[tools]") {
  for (const char* text : {"", "K", "-1", "1.5K", "8 ", " 8", "8KB", "0x10", "many", "8:"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_size("--size", text),
                      Contains("--size '" + std::string{text} + "'") && Contains("64K"));
  }
  for (const char* text : {"99999999999999999999", "9223372036854775809", "8589934593G"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_size("--size", text), Contains(text) && Contains("too large"));
  }
}

TEST_CASE("a sweep doubles from its first value up to its last", "[tools]") {
  using values = std::vector<std::uint64_t>;
  CHECK(parse_sweep("--size", "64") == values{64});
  CHECK(parse_sweep("--size", "8:64") == values{8, 16, 32, 64});
  CHECK(parse_sweep("--size", "8:63") == values{8, 16, 32});
  CHECK(parse_sweep("--size", "1K:4K") == values{1024, 2048, 4096});
  CHECK(parse_sweep("--depth", "5:5") == values{5});
}

TEST_CASE("a sweep that goes nowhere is refused", "[tools]") {
  for (const char* text : {"64:8", "0:8", ":8", "8:", "8:16:32", "a:b"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_sweep("--size", text), std::invalid_argument);
  }
}

TEST_CASE("a size is written so that it is read as the same", "[tools]") {
  CHECK(size_text(8) == "8");
  CHECK(size_text(1000) == "1000");
  CHECK(size_text(65536) == "64K");
  CHECK(size_text(1u << 30) == "1G");
  for (const std::uint64_t size : {0ull, 1ull, 1023ull, 1025ull, 3ull << 20, 1ull << 62}) {
    CHECK(parse_size("--size", size_text(size)) == size);
  }
}
