#include <cordma/connection/endpoint.hpp>

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

using cordma::endpoint;

TEST_CASE("an endpoint reads host and port, and prints what it reads", "[connection]") {
  struct row {
    const char* text;
    endpoint expected;
  };
  const row rows[] = {
      {"127.0.0.1:7471", {"127.0.0.1", 7471}},
      {"storage-3.example:1", {"storage-3.example", 1}},
      {"[::1]:65535", {"::1", 65535}},
      {"[fe80::1%eth0]:0", {"fe80::1%eth0", 0}},
  };
  for (const row& r : rows) {
    INFO(r.text);
    CHECK(endpoint::parse(r.text) == r.expected);
    CHECK(r.expected.to_string() == r.text);
  }
}

TEST_CASE("what is no endpoint is refused, and the error says what is missing", "[connection]") {
  struct row {
    const char* text;
    const char* says;
  };
  const row rows[] = {
      {"", "no host"},
      {":7471", "no host"},
      {"host", "no port"},
      {"host:", "port is not"},
      {"host:65536", "port is not"},
      {"host:-1", "port is not"},
      {"host:7x", "port is not"},
      {"::1:7471", "brackets"},
      {"[::1", "no ']'"},
      {"[::1]", "no port"},
      {"[::1]7471", "no port"},
      {"[]:1", "no host"},
  };
  for (const row& r : rows) {
    INFO(r.text);
    CHECK_THROWS_WITH(endpoint::parse(r.text), Catch::Contains(r.says));
  }
}
