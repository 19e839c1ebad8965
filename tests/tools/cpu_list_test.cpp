#include "perf/cpu_list.hpp"

#include <cordma/runtime/runtime_group.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace perf;
using Catch::Matchers::Contains;

TEST_CASE("a list of CPUs has numbers and ranges", "[tools]") {
  const unsigned first = cordma::runtime_group::allowed_cpus().front();
  const std::string one = std::to_string(first);
  CHECK(parse_cpus(one) == std::vector<unsigned>{first});
  CHECK(parse_cpus(one + '-' + one + ',' + one) == std::vector<unsigned>{first, first});
}

TEST_CASE("what is no list of CPUs, or none of ours, is refused by name", "[tools]") {
  for (const char* text : {"", "x", "0-", "-1", "0,,0", "0x1", "99999999999"}) {
    INFO(text);
    CHECK_THROWS_WITH(parse_cpus(text),
                      Contains(std::string{"--pin '"} + text + "'") && Contains("0,2,4-7"));
  }
  CHECK_THROWS_WITH(parse_cpus("5-4"), Contains("'5-4'") && Contains("a range"));
  CHECK_THROWS_WITH(parse_cpus("4000000000"), Contains("CPU 4000000000"));
  // The range ends at the first CPU that is none, not at its last one.
  CHECK_THROWS_WITH(parse_cpus("1000000-4000000000"), Contains("CPU 1000000 "));
}

TEST_CASE("threads take CPUs from an index of the list on, and need enough of them", "[tools]") {
  CHECK(cpus_for({}, 0, 4).empty());
  CHECK(cpus_for({3, 5, 7}, 0, 2) == std::vector<unsigned>{3, 5});
  CHECK(cpus_for({3, 5, 7}, 1, 2) == std::vector<unsigned>{5, 7});
  CHECK_THROWS_WITH(cpus_for({3, 5, 7}, 2, 2),
                    Contains("3 CPU(s) for 4 threads") && Contains("fewer --threads"));
}
