#include <cordma/base/result.hpp>

#include <catch2/catch.hpp>
#include <memory>
#include <string>

using cordma::errc;
using cordma::failure;
using cordma::result;

TEST_CASE("a result holds a value", "[base]") {
  result<std::string> r{"text"};
  REQUIRE(r.has_value());
  CHECK(*r == "text");
  CHECK(r->size() == 4);
  CHECK(std::move(r).value() == "text");
}

TEST_CASE("a result holds a value that can only be moved", "[base]") {
  result<std::unique_ptr<int>> r{std::make_unique<int>(5)};
  const std::unique_ptr<int> five = std::move(r).value();
  CHECK(*five == 5);
}

TEST_CASE("a failed result throws its failure when asked for the value", "[base]") {
  result<int> r{failure{.code = errc::closed, .call = "recv"}};
  CHECK(r.has_failure());
  CHECK_FALSE(r);
  CHECK(r.failure().code == errc::closed);
  CHECK_THROWS_AS(std::move(r).value(), cordma::error);
}

TEST_CASE("a stopped result is neither a value nor a failure", "[base]") {
  result<void> r{cordma::cancelled_result};
  CHECK(r.is_cancelled());
  CHECK_FALSE(r.has_value());
  CHECK_FALSE(r.has_failure());
  CHECK_THROWS_AS(std::move(r).value(), cordma::cancelled);
}

TEST_CASE("a result of nothing succeeds by default", "[base]") {
  result<void> r;
  CHECK(r.has_value());
  CHECK_NOTHROW(std::move(r).value());
}
