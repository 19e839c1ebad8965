#include "../../lib/io/epoll_reactor.hpp"

#include <cordma/io/executor.hpp>

#include "epoll_faults.hpp"
#include "wires.hpp"

#include <catch2/catch.hpp>

#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <optional>

using namespace cordma;
using namespace cordma::test;
using namespace std::chrono_literals;

TEST_CASE("a busy loop on epoll enters the kernel every 20 us at most", "[io]") {
  executor exec{{.backend = io_backend::epoll}};
  settle(exec);
  const std::uint64_t before = exec.reactor().enters();
  const time_point began = time_source::monotonic().now();
  for (int i = 0; i < 10'000; ++i) exec.reactor().poll();
  const auto polled_for = time_source::monotonic().now() - began;
  CHECK(exec.reactor().enters() - before <= std::uint64_t(polled_for / 20us) + 1);
}

TEST_CASE("a watch on epoll that a child of fork destroys goes on in its parent", "[io]") {
  executor exec{{.backend = io_backend::epoll}};
  wires w;
  std::optional<counting_watch> watch{std::in_place, exec, w.near.get()};
  settle(exec);
  const pid_t child = ::fork();
  if (child == 0) {
    watch.reset();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
  w.say();
  settle(exec);
  CHECK(watch->fired_count == 1);
}

TEST_CASE("a watch that the kernel has no memory for on epoll is told again until it has", "[io]") {
  const int why = GENERATE(ENOMEM, ENOSPC);
  executor exec{{.backend = io_backend::epoll}};
  settle(exec);
  reactor& epoll = exec.reactor();
  wires w;
  counting_watch watch{exec, w.near.get()};
  w.say();
  epoll.set_alarm(exec.after(10s));  // Ends a wait that would never end.
  epoll_faults::fail_next(2, why);
  for (unsigned left : {1U, 0U}) {
    epoll.wait();
    CHECK(epoll_faults::left() == left);
    CHECK(watch.fired_count == 0);
    CHECK(watch.is_watching());
  }
  epoll.wait();
  CHECK(watch.fired_count == 1);
  CHECK_FALSE(epoll.take_alarm());
}

TEST_CASE("a watch that the kernel has no memory for on epoll may end before it is told", "[io]") {
  executor exec{{.backend = io_backend::epoll}};
  settle(exec);
  wires w;
  {
    counting_watch watch{exec, w.near.get()};
    epoll_faults::fail_next(1, ENOMEM);
    exec.reactor().poll();
    CHECK(epoll_faults::left() == 0);
  }
  exec.reactor().poll();
  counting_watch next{exec, w.near.get()};
  w.say();
  settle(exec);
  CHECK(next.fired_count == 1);
}
