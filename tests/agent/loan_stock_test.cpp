#include "../../lib/agent/loan_stock.hpp"

#include "support/loopback.hpp"

#include <catch2/catch.hpp>

#include <algorithm>

using namespace cordma;
using test::loopback;

namespace {

lent_memory registered(loopback& on, std::size_t bytes) {
  lent_memory made;
  made.memory = on.memory(bytes);
  made.registration.emplace(on.pd, made.memory.bytes().data(), bytes, verbs::access::local_write);
  std::ranges::fill(made.memory.bytes(), std::byte{0x77});
  return made;
}

}  // namespace

TEST_CASE("what is kept is taken again with its registration, and zeroed", "[agent][device]") {
  loopback on;
  loan_stock stock;
  lent_memory memory = registered(on, 192);
  const std::byte* const place = memory.memory.bytes().data();
  const std::uint32_t key = memory.registration->lkey();
  REQUIRE(stock.keep(memory));
  CHECK(stock.bytes() == 192);

  lent_memory again;
  REQUIRE(stock.take(192, 64, again));
  CHECK(again.memory.bytes().data() == place);
  CHECK(again.registration->lkey() == key);
  CHECK(std::ranges::count(again.memory.bytes(), std::byte{0}) == 192);
  CHECK(stock.bytes() == 0);
  CHECK_FALSE(stock.take(192, 1, again));
}

TEST_CASE("only memory of the size and the alignment that is asked for will do",
          "[agent][device]") {
  loopback on;
  loan_stock stock;
  for (const unsigned bytes : {64u, 128u, 192u}) {
    lent_memory memory = registered(on, bytes);
    REQUIRE(stock.keep(memory));
  }
  lent_memory found;
  CHECK_FALSE(stock.take(100, 1, found));
  CHECK_FALSE(stock.take(256, 1, found));
  CHECK_FALSE(stock.take(128, std::size_t{1} << 40, found));
  REQUIRE(stock.take(64, 64, found));
  CHECK(found.memory.size_bytes() == 64);
  lent_memory other;
  REQUIRE(stock.take(128, 64, other));
  CHECK(other.memory.size_bytes() == 128);
  CHECK(stock.bytes() == 192);
}

TEST_CASE("a stock is small: what is too much or too many is not kept", "[agent][device]") {
  loopback on;
  loan_stock stock;
  lent_memory large = registered(on, loan_stock::piece_bytes_max + 1);
  CHECK_FALSE(stock.keep(large));
  CHECK(large.registration.has_value());
  for (std::size_t n = 0; n < loan_stock::pieces_max; ++n) {
    lent_memory memory = registered(on, 64);
    REQUIRE(stock.keep(memory));
  }
  lent_memory one_more = registered(on, 64);
  CHECK_FALSE(stock.keep(one_more));
  CHECK(stock.is_full());
  const lent_memory oldest = stock.take_oldest();
  CHECK(oldest.memory.size_bytes() == 64);
  CHECK(stock.bytes() == 63 * 64);
  CHECK(stock.keep(one_more));
}
