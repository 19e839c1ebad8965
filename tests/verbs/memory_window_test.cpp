#include <cordma/verbs/memory_region.hpp>

#include <cordma/base/error.hpp>
#include "verbs/loopback.hpp"

#include <catch2/catch.hpp>

#include <utility>

using namespace cordma::verbs;
using namespace cordma::verbs::test;

TEST_CASE("each bind of a window gets another key", "[verbs][device]") {
  loopback l;
  memory_window window{l.pd};
  const std::uint32_t first = window.next_rkey();
  CHECK(window.next_rkey() == first);
  window.bound(first);
  CHECK(window.rkey() == first);
  for (int n = 1; n < 256; ++n) {
    const std::uint32_t next = window.next_rkey();
    CHECK(next != window.rkey());
    CHECK((next & ~0xffu) == (first & ~0xffu));
    window.bound(next);
  }
  CHECK(window.next_rkey() == first);
}

TEST_CASE("a window has the type that was asked for, or the device's lack is named",
          "[verbs][device]") {
  loopback l;
  const auto type = GENERATE(IBV_MW_TYPE_1, IBV_MW_TYPE_2);
  CHECK(memory_window{l.pd, type}.type() == type);
  CHECK_THROWS_WITH((memory_window{l.pd, ibv_mw_type(3)}),
                    Catch::Matchers::Contains("no memory windows of type 3"));
}

TEST_CASE("a window that was ended is no window any more", "[verbs][device]") {
  loopback l;
  memory_window window{l.pd};
  CHECK(window.deallocate() == 0);
  CHECK(window.native_handle() == nullptr);
  memory_window other{l.pd};
  window = std::move(other);
  CHECK(window.native_handle() != nullptr);
}
