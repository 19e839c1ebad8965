#include <cordma/connection/endpoint.hpp>

#include <cordma/agent/agent_options.hpp>
#include <cordma/base/error.hpp>
#include <cordma/coro/with_timeout.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/verbs/device.hpp>

#include <catch2/catch.hpp>

#include <type_traits>

using cordma::endpoint;
using namespace std::chrono_literals;

namespace {

/// Too long to lie in the string itself: what is destroyed twice is freed twice.
#define LONG_HOST "a.name.that.does.not.lie.in.the.string.but.on.the.heap.example"

cordma::task<std::string> name_of(endpoint of) { co_return of.to_string(); }
cordma::task<std::string> name_of_another(const endpoint& of) { co_return of.to_string(); }

/// Writes endpoints in braces as users do, past what the house's hygiene refuses.
cordma::task<> await_endpoints_in_braces() {
  std::string name = co_await name_of({LONG_HOST, 1});
  CHECK(name == LONG_HOST ":1");
  name = co_await name_of(endpoint{LONG_HOST, 2});
  CHECK(name == LONG_HOST ":2");
  name = co_await name_of(endpoint{LONG_HOST ":3"});
  CHECK(name == LONG_HOST ":3");
  name = co_await name_of(LONG_HOST ":4");
  CHECK(name == LONG_HOST ":4");
  name = co_await name_of_another({LONG_HOST, 5});
  CHECK(name == LONG_HOST ":5");
  name = co_await cordma::with_timeout(name_of({LONG_HOST, 6}), 1h);
  CHECK(name == LONG_HOST ":6");
}

}  // namespace

TEST_CASE("an endpoint made in braces within a co_await is destroyed once", "[connection]") {
  cordma::executor executor;
  executor.run(await_endpoints_in_braces());
  // A type that owns text is no aggregate, or g++ 12 destroys the text twice there.
  CHECK_FALSE(std::is_aggregate_v<endpoint>);
  CHECK_FALSE(std::is_aggregate_v<cordma::lease_info>);
  CHECK_FALSE(std::is_aggregate_v<cordma::verbs::device_info>);
}

TEST_CASE("an endpoint is made from host and port, together or apart", "[connection]") {
  CHECK(endpoint{"[::1]:7471"} == endpoint{"::1", 7471});
  CHECK(endpoint{std::string{"host:1"}} == endpoint::of("host", 1));
  CHECK(endpoint{} == endpoint{"", 0});
  CHECK_THROWS_WITH(endpoint{"host"}, Catch::Contains("\"host\": no port"));
  CHECK_THROWS_WITH(endpoint::of("host", 65536), Catch::Contains("\"host:65536\": the port"));
  CHECK_THROWS_WITH(endpoint::of("host", -1), Catch::Contains("\"host:-1\": the port"));
}

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
      {"rdma:server:7471", "the ways are unix: and rdma_cm:"},
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

TEST_CASE("a Unix socket is an endpoint: a path, or an abstract name", "[connection]") {
  const endpoint path{"unix:/run/x:1"};
  CHECK(path.kind == endpoint::bootstrap::unix_socket);
  CHECK(path.host == "/run/x:1");
  CHECK(path.to_string() == "unix:/run/x:1");
  CHECK(endpoint{"unix:@x"}.host == "@x");
  CHECK_THROWS_WITH(endpoint{"unix:"}, Catch::Contains("no path; write unix:path"));
}

TEST_CASE("an endpoint may be reached by rdma_cm", "[connection]") {
  const endpoint v6{"rdma_cm:[::1]:7471"};
  CHECK(v6.kind == endpoint::bootstrap::rdma_cm);
  CHECK(v6.host == "::1");
  CHECK(v6.to_string() == "rdma_cm:[::1]:7471");
  CHECK_THROWS_WITH(endpoint{"rdma_cm:unix:/x"}, Catch::Contains("a host and a port"));
  CHECK_THROWS_WITH(endpoint{"rdma_cm:"}, Catch::Contains("no host"));
}
