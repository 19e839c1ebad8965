#include <cordma/io/socket_address.hpp>

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <cerrno>

using namespace cordma;

namespace {

socket_address numeric(const std::string& host, std::uint16_t port) {
  return socket_address::resolve(host, port).front();
}

}  // namespace

TEST_CASE("an address prints as it is written", "[io]") {
  CHECK(numeric("127.0.0.1", 7471).to_string() == "127.0.0.1:7471");
  CHECK(numeric("::1", 65535).to_string() == "[::1]:65535");
  CHECK(numeric("fe80::1%lo", 80).to_string() == "[fe80::1%lo]:80");
  CHECK(socket_address::loopback(80).to_string() == "127.0.0.1:80");
  CHECK(socket_address{}.to_string() == "0.0.0.0:0");
  CHECK(numeric("::1", 9).is_ipv6());
}

TEST_CASE("addresses are equal when family, address and port are", "[io]") {
  CHECK(numeric("127.0.0.1", 80) == socket_address::loopback(80));
  CHECK_FALSE(socket_address::loopback(81) == socket_address::loopback(80));
  CHECK_FALSE(numeric("::", 80) == socket_address::loopback(80));
}

TEST_CASE("a numeric host resolves to itself, an unknown one is an error that names it", "[io]") {
  const auto found = socket_address::resolve("127.0.0.1", 7471);
  REQUIRE(found.size() == 1);
  CHECK(found.front() == socket_address::loopback(7471));
}

TEST_CASE("a host that cannot be meant is refused with the reason", "[io]") {
  const auto refusal_of = [](const std::string& host) {
    try {
      socket_address::resolve(host, 7471);
    } catch (const error& e) {
      return e.failure();
    }
    return failure{};
  };
  const auto is_invalid = [](const failure& f) { return f.code == std::errc::invalid_argument; };
  // RFC 6761 reserves .invalid: it never resolves. Without a name server that answers, EAGAIN.
  const failure unknown = refusal_of("nobody.invalid");
  CHECK((unknown.code == errc::unknown_host || unknown.code.value() == EAGAIN));
  CHECK_THAT(unknown.to_string(),
             Catch::Contains("\"nobody.invalid\"") && !Catch::Contains("Cannot assign"));
  // Never asked of a name server.
  const failure no_address = refusal_of("::1::2");
  CHECK(no_address.code == errc::unknown_host);
  CHECK_THAT(no_address.to_string(), Catch::Contains("no such host: \"::1::2\""));
  const failure empty = refusal_of("");
  CHECK(is_invalid(empty));
  CHECK_THAT(empty.to_string(), Catch::Contains("no host is given"));
  const failure cut = refusal_of(std::string{"127.0.0.1\0.example", 18});
  CHECK(is_invalid(cut));
  CHECK_THAT(cut.to_string(), Catch::Contains("\"127.0.0.1\\0.example\": a host has no NUL"));
  const failure link_local = refusal_of("fe80::1");
  CHECK(is_invalid(link_local));
  CHECK_THAT(link_local.to_string(), Catch::Contains("\"fe80::1\"") && Catch::Contains("%eth0"));
  CHECK(socket_address::resolve("fe80::1%lo", 1).size() == 1);
}

TEST_CASE("a Unix socket's address is a path or an abstract name", "[io]") {
  CHECK(socket_address::unix_path("/run/x").to_string() == "unix:/run/x");
  CHECK(socket_address::unix_path("@x").to_string() == "unix:@x");
  CHECK(socket_address::unix_path("@x").is_loopback());
  CHECK(socket_address::unix_path("/run/x").port() == 0);
  CHECK(socket_address::unix_path("/a") == socket_address::unix_path("/a"));
  CHECK_FALSE(socket_address::unix_path("/a") == socket_address::unix_path("@a"));
  CHECK_THROWS_WITH(socket_address::unix_path(""), Catch::Contains("of 0 bytes: 1 to 107"));
  CHECK_THROWS_WITH(socket_address::unix_path(std::string(108, 'x')), Catch::Contains("of 108"));
  CHECK_THROWS_WITH(socket_address::unix_path(std::string_view{"a\0b", 3}),
                    Catch::Contains("without a NUL"));
}

TEST_CASE("an address is loopback if only this host can be there", "[io]") {
  CHECK(socket_address::loopback(1).is_loopback());
  CHECK(socket_address::resolve("127.9.9.9", 1).front().is_loopback());
  CHECK(socket_address::resolve("::1", 1).front().is_loopback());
  CHECK(socket_address::resolve("::ffff:127.0.0.1", 1).front().is_loopback());
  CHECK_FALSE(socket_address::resolve("0.0.0.0", 1).front().is_loopback());
  CHECK_FALSE(socket_address::resolve("::", 1).front().is_loopback());
  CHECK_FALSE(socket_address::resolve("128.0.0.1", 1).front().is_loopback());
}
