#include "io/host_calls.hpp"

#include "support/memory_network.hpp"

#include <cordma/io/executor.hpp>

#include <catch2/catch.hpp>

using namespace cordma;
using detail::host_calls;

TEST_CASE("an executor is on the kernel's host, unless its reactor names another", "[io]") {
  executor here{{.backend = GENERATE(io_backend::automatic, io_backend::epoll)}};
  CHECK(&here.reactor().host() == &host_calls::of_kernel());
  test::memory_network network;
  executor elsewhere{test::on_memory(network)};
  CHECK(&elsewhere.reactor().host() != &host_calls::of_kernel());
  CHECK(&elsewhere.reactor().host().sockets() == &network);
}
