#include "runtime/cpus.hpp"

#include <cordma/runtime/runtime_group.hpp>

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <algorithm>
#include <system_error>
#include <thread>

using namespace cordma;

TEST_CASE("a thread that is pinned may use that CPU alone, and may be told no other", "[runtime]") {
  const std::vector<unsigned> before = runtime_group::allowed_cpus();
  REQUIRE_FALSE(before.empty());
  CHECK(std::is_sorted(before.begin(), before.end()));
  std::vector<unsigned> during;
  std::thread{[&] {
    pin_to(before.back());
    during = runtime_group::allowed_cpus();
  }}.join();
  CHECK(during == std::vector<unsigned>{before.back()});
  CHECK(runtime_group::allowed_cpus() == before);
}

TEST_CASE("a CPU that may not be used is refused by its number, beside those that may",
          "[runtime]") {
  const std::vector<unsigned> allowed = runtime_group::allowed_cpus();
  const unsigned no_such = allowed.back() + 1;
  CHECK_NOTHROW(check_cpu(allowed.front()));
  try {
    pin_to(no_such);
    FAIL("pinned");
  } catch (const error& e) {
    CHECK(e.code() == std::errc::invalid_argument);
    CHECK_THAT(e.what(), Catch::Contains("CPU " + std::to_string(no_such) + " is none of " +
                                         std::to_string(allowed.front())));
  }
}
