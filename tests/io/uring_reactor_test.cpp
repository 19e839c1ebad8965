#include "../../lib/io/uring_reactor.hpp"

#include <cordma/io/executor.hpp>

#include "support/io_backend.hpp"
#include "support/skip.hpp"
#include "wires.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace cordma::test;

TEST_CASE("each time that the kernel is entered is counted, and looking around is not", "[io]") {
  if (!has_io_uring()) CORDMA_SKIP("io_uring is forbidden here");
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
