#include <cordma/io/socket_address.hpp>

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

using namespace cordma;

TEST_CASE("an address prints as it is written", "[io]") {
  for (const std::string text : {"127.0.0.1:7471", "[::1]:65535", "0.0.0.0:0", "[fe80::1]:80"}) {
    CHECK(socket_address::parse(text).to_string() == text);
  }
  CHECK(socket_address::loopback(80).to_string() == "127.0.0.1:80");
  CHECK(socket_address::any(1).to_string() == "0.0.0.0:1");
  CHECK(socket_address{}.to_string() == "0.0.0.0:0");
  CHECK(socket_address::parse("::1", 9).is_ipv6());
}

TEST_CASE("addresses are equal when family, address and port are", "[io]") {
  CHECK(socket_address::parse("127.0.0.1", 80) == socket_address::loopback(80));
  CHECK_FALSE(socket_address::loopback(81) == socket_address::loopback(80));
  CHECK_FALSE(socket_address::parse("[::]:80") == socket_address::any(80));
}

TEST_CASE("what is no address is refused with what was expected", "[io]") {
  for (const char* text :
       {"", ":", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "127.0.0.1:8x", "127.0.0.1:-1",
        "host:80", "::1:80", "[::1]", "[::1:80", "300.1.1.1:80"}) {
    INFO(text);
    try {
      socket_address::parse(text);
      FAIL_CHECK("accepted");
    } catch (const error& e) {
      CHECK(e.code() == std::errc::invalid_argument);
      CHECK_THAT(e.what(), Catch::Contains("such as"));
    }
  }
}

TEST_CASE("a numeric host resolves to itself, an unknown one is an error that names it", "[io]") {
  const auto found = socket_address::resolve("127.0.0.1", 7471);
  REQUIRE(found.size() == 1);
  CHECK(found.front() == socket_address::loopback(7471));
  // RFC 6761 reserves .invalid: it never resolves.
  CHECK_THROWS_WITH(socket_address::resolve("nobody.invalid", 1),
                    Catch::Contains("nobody.invalid"));
}
