#include "../../lib/io/uring_reactor.hpp"

#include <cordma/io/executor.hpp>

#include "wires.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::test;

TEST_CASE("each time that the kernel is entered is counted, and looking around is not", "[io]") {
  executor exec{{.backend = io_backend::io_uring}};
  settle(exec);
  const std::uint64_t before = exec.reactor().enters();
  for (int i = 0; i < 100; ++i) exec.reactor().poll();
  CHECK(exec.reactor().enters() == before);
  wires w;
  const counting_watch watch{exec, w.near.get()};
  exec.reactor().poll();
  CHECK(exec.reactor().enters() == before + 1);
  exec.reactor().wake();
  exec.reactor().wait();
  CHECK(exec.reactor().enters() == before + 2);
}
