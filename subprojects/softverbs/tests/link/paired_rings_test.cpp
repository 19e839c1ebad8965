#include "link/paired_rings.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <memory>
#include <span>

using namespace softverbs;

namespace {

bool is_zero(const ring_view& ring) {
  const std::span<const std::byte> data{ring.data, ring_bytes};
  return ring.control->tail.load() == 0 && ring.control->head.load() == 0 &&
         ring.control->doorbell_wanted.load() == 0 && ring.control->space_wanted.load() == 0 &&
         std::ranges::all_of(data, [](std::byte one) { return one == std::byte{}; });
}

}  // namespace

TEST_CASE("what one end puts into paired rings, the other end finds", "[link]") {
  const std::shared_ptr<paired_rings> rings = paired_rings::make();
  REQUIRE(rings != nullptr);
  for (const bool opener : {false, true}) {
    rings->out(opener).data[7] = std::byte{5};
    CHECK(rings->in(!opener).data[7] == std::byte{5});
    CHECK(rings->in(!opener).control == rings->out(opener).control);
    CHECK(rings->in(opener).data[8] == std::byte{});
  }
}

TEST_CASE("rings of a link that has ended are all zero for the next one", "[link]") {
  const std::size_t used = GENERATE(std::size_t{4096}, ring_bytes);
  std::shared_ptr<paired_rings> rings = paired_rings::make();
  REQUIRE(rings != nullptr);
  const ring_control* const before = rings->out(true).control;
  for (const bool opener : {false, true}) {
    const ring_view ring = rings->out(opener);
    std::memset(ring.data, 5, used);
    ring.control->tail.store(used);
    ring.control->head.store(64);
    ring.control->doorbell_wanted.store(1);
    ring.control->space_wanted.store(1);
    rings->note_end(opener, used);
  }
  rings.reset();
  rings = paired_rings::make();
  REQUIRE(rings != nullptr);
  CHECK(rings->out(true).control == before);
  CHECK(is_zero(rings->out(true)));
  CHECK(is_zero(rings->out(false)));
}
