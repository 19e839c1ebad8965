#include "group/meeting_host.hpp"

#include "support/connected_pair.hpp"

#include <cordma/group/joining.hpp>
#include <cordma/io/socket_address.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("all processes of a host have the same number, unless told another", "[group]") {
  CHECK(host_number({}) == host_number({}));
  CHECK(host_number({}) != 0);
  group_options named;
  named.host = 4711;
  CHECK(host_number(named) == 4711);
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
