#include "io/host_calls.hpp"

#include "support/memory_host.hpp"

#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <vector>

using namespace cordma;
using detail::host_calls;

TEST_CASE("an executor is on the kernel's host, unless its reactor names another", "[io]") {
  executor here{{.backend = GENERATE(io_backend::automatic, io_backend::epoll)}};
  CHECK(&here.reactor().host() == &host_calls::of_kernel());
  test::memory_host host;
  executor elsewhere{test::on_memory(host)};
  CHECK(&elsewhere.reactor().host() == &host);
}

TEST_CASE("the kernel's host has its loopback's address, and finds names and ways", "[io]") {
  host_calls& host = host_calls::of_kernel();
  const socket_address loopback = socket_address::loopback(0);
  const auto own = host.own_addresses();
  CHECK(std::ranges::count(own, loopback) == 1);
  CHECK(host.resolve("127.0.0.1", 7) == std::vector{socket_address::loopback(7)});
  CHECK(host.address_toward(socket_address::loopback(9)) == loopback);
  CHECK_THROWS_AS(host.address_toward(socket_address::unix_path("/no/such")), error);
  CHECK_FALSE(host.boot_id().empty());
  CHECK(host.boot_id() == host.boot_id());
  CHECK(host.has_threads());
}
