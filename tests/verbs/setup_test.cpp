#include <cordma/verbs/queue_pair.hpp>

#include <cordma/base/error.hpp>
#include "support/verbs_faults.hpp"
#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cerrno>
#include <string>
#include <utility>

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

TEST_CASE("a protection domain takes the place of another, with or without thread domains",
          "[verbs][device]") {
  const bool first = GENERATE(false, true);
  const bool second = GENERATE(false, true);
  {
    context ctx{device_name()};
    protection_domain pd{ctx, first};
    protection_domain other{ctx, second};
    const ibv_pd* const handle = other.native_handle();
    const ibv_pd* const queues = other.queues_handle();
    const protection_domain::queue_domain made = other.queues();
    pd = std::move(other);
    CHECK(pd.native_handle() == handle);
    CHECK(pd.queues_handle() == queues);
    CHECK(pd.queues() == made);
    CHECK(pd.limits().pd_max == ctx.limits().pd_max);
    CHECK(verbs_faults::live_objects()[std::size_t(verbs_faults::kind::pd)] ==
          (queues == handle ? 1 : 2));
  }
  CHECK(verbs_faults::live_objects() == nothing_live);
}
