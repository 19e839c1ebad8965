#include <cordma/verbs/queue_pair.hpp>

#include <cordma/base/error.hpp>
#include "support/verbs_faults.hpp"
#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <string>

using namespace cordma::verbs;
using namespace cordma::verbs::test;

namespace {

constexpr std::array<long, verbs_faults::kind_count> nothing_live{};

}  // namespace

TEST_CASE("a setup that fails at any step unwinds", "[verbs][device][C5]") {
  const auto set_up = [] {
    loopback l;
    l.connect();
  };
  verbs_faults::fail_call(0, 0);
  set_up();
  const unsigned steps = verbs_faults::calls_made();
  REQUIRE(steps == 9);
  for (unsigned k = 1; k <= steps; ++k) {
    verbs_faults::fail_call(k, ENOMEM);
    const cordma::failure failure = failure_of(set_up);
    INFO(k << ": " << failure.to_string());
    CHECK(failure.code.value() == ENOMEM);
    CHECK(std::string{failure.call} == verbs_faults::failed_call());
    CHECK(verbs_faults::to_string(verbs_faults::live_objects()) ==
          verbs_faults::to_string(nothing_live));
  }
  verbs_faults::fail_call(0, 0);
  set_up();
  CHECK(verbs_faults::live_objects() == nothing_live);
}
