#include "group/meeting_host.hpp"

#include "support/connected_pair.hpp"
#include "support/memory_host.hpp"

#include <cordma/group/joining.hpp>
#include <cordma/io/socket_address.hpp>

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("all processes of a host have the same number, unless told another", "[group][device]") {
  runtime rt{test::on_test_device()};
  CHECK(host_number(rt, {}) == host_number(rt, {}));
  CHECK(host_number(rt, {}) != 0);
  group_options named;
  named.host = 4711;
  CHECK(host_number(rt, named) == 4711);
}

TEST_CASE("the runtime's own host says which ranks share it, and where others reach it",
          "[group][device]") {
  const char* const boots[] = {"first", "second", "first"};
  const char* const addresses[] = {"192.0.2.7", "192.0.2.8", "192.0.2.9"};
  std::uint64_t numbers[3];
  std::string told[3];
  for (int i = 0; i < 3; ++i) {
    test::memory_host host;
    host.boot = boots[i];
    host.addresses = {socket_address::resolve(addresses[i], 0).front()};
    runtime_options options;
    options.executor = test::on_memory(host);
    runtime rt{test::on_test_device(std::move(options))};
    numbers[i] = host_number(rt, {});
    told[i] = reachable_endpoint(rt, "192.0.2.1").host;
  }
  // A device that has an address tells that one.
  const bool has_device_one = told[0] != addresses[0];
  for (int i = 0; i < 3; ++i) CHECK(told[i] == (has_device_one ? told[0] : addresses[i]));
  CHECK(numbers[0] != numbers[1]);
  CHECK(numbers[0] == numbers[2]);
}

TEST_CASE("loopback's addresses and Unix sockets are of this host alone", "[group]") {
  for (const char* own : {"127.0.0.1:1", "127.8.0.1:1", "[::1]:1", "localhost:1", "unix:/run/x",
                          "rdma_cm:127.0.0.1:1"})
    CHECK(is_this_host(own));
  for (const char* other : {"10.0.0.1:1", "[::2]:1", "node1:1", "rdma_cm:10.0.0.1:1"})
    CHECK_FALSE(is_this_host(other));
}

TEST_CASE("the address that others are told is one of this host's", "[group][device]") {
  runtime rt{test::on_test_device()};
  const endpoint own = reachable_endpoint(rt, "127.0.0.1");
  CHECK(own.port == 0);
  CHECK_NOTHROW(rt.listen(own, {}, {.insecure = true}));
}
