#include "agent/lending.hpp"

#include "support/loopback.hpp"
#include "support/verbs_faults.hpp"

#include <cordma/runtime/runtime.hpp>

#include <catch2/catch.hpp>

#include <set>

using namespace cordma;

TEST_CASE("windows come in rotation, so that their keys recur late", "[agent][device]") {
  test::loopback link;
  lending windows{link.ctx, link.pd};
  REQUIRE(windows.reserve(0, {}));
  std::vector<const ibv_mw*> order;
  for (int n = 0; n < 48; ++n) {
    verbs::memory_window window = windows.take_window();
    order.push_back(window.native_handle());
    windows.give_back(std::move(window));
  }
  CHECK(std::set(order.begin(), order.begin() + 16).size() == 16);
  for (std::size_t n = 16; n < order.size(); ++n) CHECK(order[n] == order[n - 16]);
  windows.release(0);
}

TEST_CASE("of many windows that are out, the first that comes back is the next to go out again",
          "[agent][device]") {
  test::loopback link;
  lending windows{link.ctx, link.pd};
  constexpr std::size_t leases = 100;
  std::vector<verbs::memory_window> out;
  for (std::size_t n = 0; n < leases; ++n) {
    REQUIRE(windows.reserve(0, {}));
    out.push_back(windows.take_window());
  }
  std::vector<const ibv_mw*> back;
  for (; !out.empty(); out.pop_back()) {
    back.push_back(out.back().native_handle());
    windows.give_back(std::move(out.back()));
  }
  for (std::size_t n = 0; n < 3 * leases; ++n) {
    verbs::memory_window window = windows.take_window();
    CHECK(window.native_handle() == back[n % leases]);
    windows.give_back(std::move(window));
  }
  for (std::size_t n = 0; n < leases; ++n) windows.release(0);
}

TEST_CASE("totals count for every domain of a device", "[agent][device]") {
  test::loopback link;
  lending windows{link.ctx, link.pd};
  verbs::protection_domain other_pd{link.ctx};
  lending other{windows, other_pd};
  const lending_policy policy{.total_bytes_max = 100, .total_leases_max = 2};
  CHECK(windows.reserve(60, policy));
  CHECK_FALSE(other.reserve(41, policy));
  CHECK_FALSE(other.reserve(~std::size_t{0}, policy));
  CHECK(other.reserve(40, policy));
  CHECK_FALSE(windows.reserve(0, policy));
  windows.release(60);
  CHECK(windows.reserve(60, policy));
  windows.release(60);
  other.release(40);
}

TEST_CASE("the flush word is there to be read, and nothing else", "[agent][device]") {
  test::loopback link;
  lending windows{link.ctx, link.pd};
  const remote_mr_slice word = windows.flush_word();
  CHECK(word.size_bytes() == lending::flush_bytes);
  CHECK(windows.flush_word().rkey() == word.rkey());
  local_mr mine = link.memory(8);
  mine.bytes()[0] = std::byte{1};
  link.run(link.a->read(mine.slice(), word));
  CHECK(mine.bytes()[0] == std::byte{0});
  CHECK(link.outcome(link.a->write(mine.slice(), word)).failure().code ==
        make_error_code(wc_errc::remote_access));
}
