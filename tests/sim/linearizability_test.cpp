#include "linearizability.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <vector>

using cordma::test::is_linearizable;
using cordma::test::register_operation;

namespace {

constexpr std::int64_t lost = register_operation::open;

register_operation put(std::uint64_t value, std::int64_t begin, std::int64_t end) {
  return {.begin = begin, .end = end, .is_write = true, .value = value};
}
register_operation get(std::uint64_t value, std::int64_t begin, std::int64_t end) {
  return {.begin = begin, .end = end, .is_write = false, .value = value};
}
bool holds(const std::vector<register_operation>& history) { return is_linearizable(history); }

/// A history of a register that is one: each operation happens at a moment of its own.
std::vector<register_operation> any_history(std::mt19937& chance, unsigned clients,
                                            unsigned operations) {
  const auto up_to = [&](unsigned last) { return std::int64_t(chance() % (last + 1)); };
  struct moment {
    std::int64_t at;
    std::size_t index;
  };
  std::vector<register_operation> history;
  std::vector<moment> moments;
  for (unsigned c = 0; c < clients; ++c) {
    std::int64_t now = up_to(20);
    for (unsigned n = 0; n < operations; ++n) {
      const std::int64_t begin = now, at = begin + 1 + up_to(20), end = at + 1 + up_to(20);
      moments.push_back({at, history.size()});
      history.push_back({begin, end, up_to(1) == 0, history.size() + 1});
      now = end + 1 + up_to(10);
    }
  }
  std::ranges::sort(moments, {}, [](const moment& m) { return std::pair{m.at, m.index}; });
  std::uint64_t value = 0;
  for (const moment& m : moments) {
    register_operation& one = history[m.index];
    const bool never = one.is_write && up_to(9) == 0;
    if (never || (one.is_write && up_to(9) == 0)) one.end = lost;
    if (never) continue;
    one.is_write ? void(value = one.value) : void(one.value = value);
  }
  return history;
}

/// Looks at all orders, without remembering any.
bool has_order(std::vector<register_operation>& left, std::uint64_t value) {
  const bool is_complete =
      std::ranges::all_of(left, [](const register_operation& one) { return one.end == lost; });
  if (is_complete) return true;
  for (std::size_t i = 0; i < left.size(); ++i) {
    const register_operation next = left[i];
    if (std::ranges::any_of(left, [&](const auto& one) { return one.end < next.begin; })) continue;
    if (!next.is_write && next.value != value) continue;
    left.erase(left.begin() + std::ptrdiff_t(i));
    const bool found = has_order(left, next.is_write ? next.value : value);
    left.insert(left.begin() + std::ptrdiff_t(i), next);
    if (found) return true;
  }
  return false;
}

}  // namespace

TEST_CASE("operations one after another are linearizable if each read gives the last write",
          "[sim]") {
  CHECK(holds({}));
  CHECK(holds({get(0, 1, 2)}));
  CHECK(holds({put(1, 1, 2), get(1, 3, 4), put(2, 5, 6), get(2, 7, 8)}));
  CHECK_FALSE(holds({get(1, 1, 2)}));
  CHECK_FALSE(holds({put(1, 1, 2), get(0, 3, 4)}));
  CHECK_FALSE(holds({put(1, 1, 2), put(2, 3, 4), get(1, 5, 6)}));
}

TEST_CASE("operations at once may have happened in either order, but in one", "[sim]") {
  CHECK(holds({put(1, 1, 10), get(0, 2, 9)}));
  CHECK(holds({put(1, 1, 10), get(1, 2, 9)}));
  CHECK(holds({put(1, 1, 10), put(2, 1, 10), get(1, 11, 12)}));
  CHECK(holds({put(1, 1, 10), put(2, 1, 10), get(1, 2, 3), get(2, 4, 5)}));
  CHECK_FALSE(holds({put(1, 1, 10), get(1, 2, 3), get(0, 4, 5)}));
  CHECK_FALSE(holds({put(1, 1, 10), put(2, 1, 10), get(1, 11, 12), get(2, 13, 14)}));
  // Two readers that see two writes in two orders.
  CHECK_FALSE(holds({put(1, 1, 10), put(2, 1, 10), get(1, 2, 4), get(2, 5, 9), get(2, 2, 4),
                     get(1, 5, 9), get(1, 11, 12), get(2, 11, 12)}));
}

TEST_CASE("a write whose answer was lost may take effect at any time, or never", "[sim]") {
  CHECK(holds({put(1, 1, lost), get(0, 5, 6)}));
  CHECK(holds({put(1, 1, lost), get(0, 5, 6), get(1, 100, 101)}));
  CHECK_FALSE(holds({put(1, 1, lost), get(1, 5, 6), get(0, 7, 8)}));
  CHECK_FALSE(holds({get(1, 1, 2), put(1, 3, lost)}));
  CHECK(holds({get(7, 1, lost), get(0, 2, 3)}));
}

TEST_CASE("histories of a register are linearizable", "[sim]") {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    INFO("seed " << seed);
    std::mt19937 chance{seed};
    CHECK(holds(any_history(chance, 4, 25)));
  }
}

TEST_CASE("the search agrees with one of all orders, whatever a read gives", "[sim]") {
  unsigned linearizable = 0;
  for (std::uint32_t seed = 1; seed <= 600; ++seed) {
    INFO("seed " << seed);
    std::mt19937 chance{seed};
    std::vector<register_operation> history = any_history(chance, 3, 2);
    register_operation& changed = history[chance() % history.size()];
    if (!changed.is_write) changed.value = chance() % (history.size() + 1);
    const bool has_one = has_order(history, 0);
    CHECK(holds(history) == has_one);
    linearizable += has_one;
  }
  CHECK(linearizable > 100);
  CHECK(linearizable < 550);
}
