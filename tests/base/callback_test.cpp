#include <cordma/detail/base/callback.hpp>

#include <catch2/catch.hpp>

#include <memory>

using namespace cordma;

TEST_CASE("a callback is empty until it is given a function, and its copies share that", "[base]") {
  callback<int(int)> none;
  CHECK_FALSE(none);
  CHECK(callback<int(int)>{nullptr} == nullptr);
  int calls = 0;
  callback<int(int)> one = [&calls, sum = 0](int n) mutable {
    ++calls;
    return sum += n;
  };
  REQUIRE(one);
  const callback<int(int)> other = one;
  CHECK(one(2) == 2);
  CHECK(other(3) == 5);
  CHECK(calls == 2);
}

TEST_CASE("a callback takes what can only be moved, and gives it back with its last copy",
          "[base]") {
  const auto counted = std::make_shared<int>(1);
  {
    const callback<int(std::unique_ptr<int>)> adds =
        [kept = std::make_unique<int>(2), counted](std::unique_ptr<int> n) { return *kept + *n; };
    const callback<int(std::unique_ptr<int>)> copy = adds;
    CHECK(copy(std::make_unique<int>(40)) == 42);
    CHECK(counted.use_count() == 2);
  }
  CHECK(counted.use_count() == 1);
}

TEST_CASE("a callback takes a plain function", "[base]") {
  const callback<int(int, int)> smaller = +[](int a, int b) { return a < b ? a : b; };
  CHECK(smaller(3, 2) == 2);
}
