#include "base/random.hpp"

#include "support/counted_bytes.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <cstdint>
#include <set>
#include <thread>
#include <vector>

using namespace cordma;
using detail::random_bytes;
using detail::random_scope;
using detail::random_value;
using test::counted_bytes;

TEST_CASE("random values differ, and every byte of them is filled", "[base]") {
  std::set<std::uint64_t> seen;
  std::uint64_t set_bits = 0;
  for (int i = 0; i < 64; ++i) {
    const auto value = random_value<std::uint64_t>();
    seen.insert(value);
    set_bits |= value;
  }
  CHECK(seen.size() == 64);
  CHECK(set_bits == UINT64_MAX);
}

TEST_CASE("more random bytes come than the kernel gives in one piece", "[base]") {
  std::vector<std::byte> many(1000);
  random_bytes(many);
  const std::set<std::byte> tail(many.end() - 200, many.end());
  CHECK(tail.size() > 10);
  random_bytes({});
}

TEST_CASE("a scope replaces the random source of its thread, and of no other", "[base]") {
  counted_bytes outer;
  const random_scope of_outer{outer};
  CHECK(random_value<std::uint8_t>() == 1);
  {
    counted_bytes inner{100};
    const random_scope of_inner{inner};
    CHECK(random_value<std::array<std::uint8_t, 3>>() ==
          std::array<std::uint8_t, 3>{101, 102, 103});
  }
  CHECK(random_value<std::uint8_t>() == 2);
  std::array<std::uint8_t, 64> elsewhere{};
  std::thread{[&] { random_bytes(std::as_writable_bytes(std::span{elsewhere})); }}.join();
  CHECK(std::set(elsewhere.begin(), elsewhere.end()).size() > 10);
  CHECK(random_value<std::uint8_t>() == 3);
}
