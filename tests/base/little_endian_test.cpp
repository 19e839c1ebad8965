#include "../../lib/base/little_endian.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>

using namespace cordma;

TEST_CASE("a number travels with its least significant byte first, and comes back", "[base]") {
  std::array<std::byte, 9> at{};
  std::byte* const odd = &at[1];
  little_endian::put(odd, std::uint64_t{0x0102030405060708});
  for (unsigned i = 0; i < 8; ++i) CHECK(odd[i] == std::byte(8 - i));
  CHECK(little_endian::get<std::uint64_t>(odd) == 0x0102030405060708);
  CHECK(little_endian::get<std::uint32_t>(odd) == 0x05060708);
  CHECK(little_endian::get<std::uint16_t>(odd) == 0x0708);
  CHECK(little_endian::get<std::uint8_t>(odd) == 0x08);
  little_endian::put(odd, std::uint16_t{0xaabb});
  CHECK(odd[0] == std::byte{0xbb});
  CHECK(odd[1] == std::byte{0xaa});
  CHECK(odd[2] == std::byte{6});
}
