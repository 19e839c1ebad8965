#include "group/meeting_member.hpp"

#include <catch2/catch.hpp>

#include <chrono>
#include <numeric>
#include <set>
#include <vector>

using namespace cordma;
using namespace cordma::detail;

TEST_CASE("the first missing ranks are named, and all are counted", "[group]") {
  std::vector<unsigned> missing(20);
  std::iota(missing.begin(), missing.end(), 3);
  const failure f =
      missing_ranks("meeting::at", missing, 30, std::chrono::seconds{2}, "node1:7000");
  CHECK(f.code == errc::timed_out);
  CHECK_THAT(f.to_string(),
             Catch::Contains("ranks 3, 4, 5, 6, 7, 8, 9, 10 and 12 more of 30 did not come to "
                             "node1:7000 within 2000 ms"));
}

TEST_CASE("a single missing rank is named", "[group]") {
  CHECK_THAT(missing_ranks("meeting::at", std::vector{4u}, 5, std::chrono::seconds{2}).to_string(),
             Catch::Contains("rank 4 of 5 did not come within 2000 ms"));
}

TEST_CASE("an endpoint that nobody can connect to is a fault", "[group]") {
  CHECK(fault_of("node1:1").empty());
  CHECK(fault_of("[2001:db8::1]:1").empty());
  CHECK(fault_of("rdma_cm:10.0.0.1:1").empty());
  CHECK(fault_of("unix:@x").empty());
  for (const char* wrong : {"node1", "node1:0", "0.0.0.0:1", "[::]:1", "", "a:b:c", "unix:"}) {
    INFO(wrong);
    CHECK_FALSE(fault_of(wrong).empty());
  }
  CHECK(fault_of(std::string(endpoint_bytes_max - 2, 'x') + ":1").empty());
  CHECK_THAT(fault_of(std::string(endpoint_bytes_max - 1, 'x') + ":1"), Catch::Contains("301"));
}

TEST_CASE("a group's size has a limit, and each rank is below the size", "[group]") {
  CHECK_NOTHROW(check_rank("x", 0, 1));
  CHECK_NOTHROW(check_rank("x", ranks_max - 1, ranks_max));
  CHECK_THROWS_AS(check_rank("x", 0, 0), error);
  CHECK_THROWS_AS(check_rank("x", 1, 1), error);
  CHECK_THROWS_AS(check_rank("x", 0, std::size_t{ranks_max} + 1), error);
}

TEST_CASE("hashes of different texts and seeds differ", "[group]") {
  std::set<std::uint64_t> hashes;
  for (const char* text : {"", "a", "b", "ab", "ba"})
    for (std::uint64_t seed = 0; seed < 3; ++seed) hashes.insert(hash_of(text, seed));
  CHECK(hashes.size() == 15);
  CHECK(hash_of("ab") == hash_of("ab"));
}
