#include <cordma/base/result.hpp>

#include "support/aborts.hpp"

#include <catch2/catch.hpp>

#include <memory>

using namespace cordma;

TEST_CASE("a result holds a value, a failure or a stop", "[base]") {
  result<int> value = 7;
  CHECK(value.has_value());
  CHECK(*value == 7);
  const result<int> failed = failure{.code = errc::closed};
  CHECK(failed.has_failure());
  CHECK_FALSE(failed);
  CHECK(failed.failure().code == errc::closed);
  const result<int> stopped = cancelled_result;
  CHECK(stopped.is_cancelled());
  CHECK_FALSE(stopped.has_failure());
}

TEST_CASE("the value of a result that has none throws what happened", "[base]") {
  CHECK_THROWS_AS(result<int>{failure{.code = errc::closed}}.value(), error);
  CHECK_THROWS_AS(result<int>{cancelled_result}.value(), cancelled);
  CHECK_NOTHROW(result<void>{}.value());
}

TEST_CASE("a result carries what can only be moved, and results of results", "[base]") {
  result<std::unique_ptr<int>> owner = std::make_unique<int>(3);
  CHECK(**owner == 3);
  CHECK(*std::move(owner).value() == 3);
  const result<result<void>> nested = result<void>{cancelled_result};
  REQUIRE(nested.has_value());
  CHECK((*nested).is_cancelled());
}

TEST_CASE("reading a value that is not there is a broken contract", "[base]") {
  const auto death = support::run_in_child([] {
    result<int> none = cancelled_result;
    static_cast<void>(*none);
  });
  CHECK(death.aborted);
  CHECK(death.text.find("result holds no value") != std::string::npos);
}
