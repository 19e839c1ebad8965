#include <cordma/base/error.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <vector>

using namespace cordma;
using Catch::Matchers::Contains;

TEST_CASE("without OpenSSL keys and certificates are refused at once, with the way out",
          "[security]") {
  const credentials::psk_key key{"blue", std::vector<std::byte>(32)};
  const std::string way_out = "-Dopenssl=enabled";
  CHECK_THROWS_WITH(credentials::psk(key), Contains("credentials::psk") && Contains(way_out));
  CHECK_THROWS_WITH(credentials::certificates({}),
                    Contains("credentials::certificates") && Contains(way_out));
}
