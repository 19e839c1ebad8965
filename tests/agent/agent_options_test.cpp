#include "agent/agent.hpp"

#include <catch2/catch.hpp>

using namespace cordma;
using namespace std::chrono_literals;

TEST_CASE("options that no agent can have are refused by name", "[agent]") {
  agent_options o;
  CHECK_NOTHROW(check(o));
  const char* says = "";
  SECTION("a lease of no time") {
    o.lending.lease_max = 0ms;
    says = "lending.lease_max 0 ms is not between 1 ms and 86400000 ms";
  }
  SECTION("no leases") {
    o.lending.leases_max = 0;
    says = "lending.leases_max 0";
  }
  SECTION("no patience") {
    o.lending.grace = 0ms;
    says = "lending.grace 0 ms";
  }
  SECTION("a revocation that never ends") {
    o.lending.revoke_timeout = 25h;
    says = "lending.revoke_timeout 90000000 ms";
  }
  SECTION("all margin") {
    o.operation_margin_percent = 91;
    says = "operation_margin_percent 91 is not between 0 and 90";
  }
  SECTION("local access to lend") {
    o.lending.access_max = verbs::access::local_write;
    says = "lending.access_max";
  }
  SECTION("a least isolation above the most") {
    o.lending.isolation_min = isolation::exact;
    o.lending.isolation_max = isolation::exact_registered;
    says = "isolation_min is stronger";
  }
  SECTION("zero-based without windows") {
    o.lending.isolation_min = isolation::shared_key;
    o.lending.zero_based = true;
    says = "zero_based needs windows";
  }
  if (*says != 0) CHECK_THROWS_WITH(check(o), Catch::Contains(says));
}

TEST_CASE("isolation has names", "[agent]") {
  CHECK(std::string{to_string(isolation::shared_key)} == "shared_key");
  CHECK(std::string{to_string(isolation::exact_registered)} == "exact_registered");
  CHECK(std::string{to_string(isolation::exact)} == "exact");
}
