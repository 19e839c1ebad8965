#include <cordma/queue/message.hpp>

#include "support/loopback.hpp"

#include <catch2/catch.hpp>

#include <utility>

using namespace cordma;
using test::loopback;

TEST_CASE("a buffer's slices are copied with it, one or as many as there may be",
          "[queue][device]") {
  loopback link;
  local_mr mr = link.memory(64);
  const auto nth = [&](std::size_t i) { return mr.slice(8 * i, 8); };
  buffer_slices slices = nth(0);
  for (std::size_t i = 1; i < buffer_slices::size_max; ++i) {
    const buffer_slices copy = slices;
    CHECK(copy.size() == i);
    slices.push_back(nth(i));
  }
  const buffer_slices copy = slices;
  REQUIRE(copy.size() == buffer_slices::size_max);
  for (std::size_t i = 0; i < copy.size(); ++i) {
    CHECK(copy[i].bytes().data() == nth(i).bytes().data());
    CHECK(copy[i].block() == mr.slice().block());
    CHECK(copy[i].lkey() == mr.slice().lkey());
  }
}

TEST_CASE("a message's payload is what arrived in its first slice", "[queue][device]") {
  loopback link;
  local_mr mr = link.memory(64);
  message m{.slices = mr.slice(0, 16), .size_bytes = 5};
  CHECK(m.payload().size_bytes() == 5);
  CHECK(m.payload().bytes().data() == mr.bytes().data());
  m.slices.push_back(mr.slice(16, 16));
  m.size_bytes = 20;  // The payload goes on in the second slice.
  CHECK(m.payload().size_bytes() == 16);
  m.is_write = true;
  CHECK(m.payload().empty());
  CHECK(message{.size_bytes = 3, .immediate = 1}.payload().empty());
}
