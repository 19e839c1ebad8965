#include "base/is_same_secret.hpp"

#include <catch2/catch.hpp>

#include <array>

using cordma::is_same_secret;

TEST_CASE("secrets are the same if all bytes are", "[base]") {
  const std::array<std::byte, 32> zeros{};
  const std::span<const std::byte> secret{zeros};
  CHECK(is_same_secret(secret, secret));
  CHECK(is_same_secret({}, {}));
  CHECK_FALSE(is_same_secret(secret, secret.first(31)));
  for (std::size_t i = 0; i < zeros.size(); ++i) {
    auto other = zeros;
    other[i] = std::byte{0x80};
    CHECK_FALSE(is_same_secret(secret, other));
  }
}
