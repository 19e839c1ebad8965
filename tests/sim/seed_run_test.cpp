#include "sim/seed_run.hpp"

#include <cordma/coro/sleep.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <memory>
#include <stdexcept>
#include <string>

using namespace cordma;
using namespace std::chrono_literals;
using sim::detail::decision_kind;
using sim::detail::plan;
using sim::detail::seed_run;

namespace {

/// Lets a host sleep five times.
void sleep_five_times(sim::world& w) {
  sim::host& a = w.add_host("a <&> b");
  a.start([&](runtime&) -> task<> {
    for (unsigned n = 0; n < 5; ++n) co_await sleep_for(1ms + w.random(1000) * 1us);
  });
  w.run();
}

void throw_something(sim::world& w) {
  w.add_host("a");
  throw std::runtime_error{"no such thing"};
}

void fail_by_itself(sim::world& w) { w.fail("this must not be"); }

const sim::scenario sleeping{"sleeping", "", &sleep_five_times};
const sim::scenario throwing{"throwing", "", &throw_something};
const sim::scenario failing{"failing", "", &fail_by_itself};

}  // namespace

TEST_CASE("a run of a seed has its hash, its events and its decisions", "[sim]") {
  const seed_run first{{.what = &sleeping, .seed = 3, .wanted = sim::faults::harsh()}};
  const seed_run again{{.what = &sleeping, .seed = 3, .wanted = sim::faults::harsh()}};
  const seed_run other{{.what = &sleeping, .seed = 4, .wanted = sim::faults::harsh()}};
  CHECK(first.found == "");
  CHECK(first.events > 5);
  CHECK(first.events == again.events);
  CHECK(first.hash == again.hash);
  CHECK(first.decisions_made == again.decisions_made);
  CHECK(first.decisions_made[std::size_t(decision_kind::schedule)] > 0);
  CHECK(first.hash == other.hash);
  CHECK(first.host_names == std::vector<std::string>{"a <&> b"});
  CHECK(first.trace.empty());
}

TEST_CASE("whatever a scenario throws is found", "[sim]") {
  CHECK(seed_run{{.what = &throwing, .seed = 1}}.found == "the scenario failed: no such thing");
  CHECK_THAT((seed_run{{.what = &failing, .seed = 17}}.found),
             Catch::StartsWith("this must not be\nseed 17; "));
}
