#include "base/crc32.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <string_view>

TEST_CASE("a checksum is that of IEEE 802.3", "[base]") {
  constexpr std::string_view digits = "123456789";
  CHECK(cordma::crc32(std::as_bytes(std::span{digits})) == 0xcbf43926);
  CHECK(cordma::crc32({}) == 0);
}

TEST_CASE("a checksum sees each bit that changed", "[base]") {
  std::array<std::byte, 64> bytes{};
  const std::uint32_t before = cordma::crc32(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
    CHECK(cordma::crc32(bytes) != before);
    bytes[bit / 8] ^= std::byte{1} << bit % 8;
  }
}
