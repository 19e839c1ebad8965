#include "multicast/group_view.hpp"

#include "groups.hpp"

#include <catch2/catch.hpp>

#include <array>

using namespace softverbs;
using namespace std::chrono_literals;
using softverbs::test::group;

namespace {

using time_point = group_view::time;
constexpr time_point start{std::chrono::hours{1}};

in6_addr host(std::uint8_t n) {
  return {{{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, n}}};
}

announcement members(std::uint16_t slot, std::uint8_t n) {
  announcement made{};
  made.slot = slot;
  made.count = 1;
  made.groups[0] = group(n);
  return made;
}

/// Returns a group among more than a byte counts.
ibv_gid numbered(std::size_t n) {
  return {{0xff, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, static_cast<std::uint8_t>(n >> 8),
           static_cast<std::uint8_t>(n)}};
}

std::size_t count(group_view& view, std::uint8_t n, time_point now) {
  const auto list = view.members_of(group(n), now);
  return list == nullptr ? 0 : list->size();
}

}  // namespace

TEST_CASE("a member on another host stays for three periods after its last word", "[multicast]") {
  group_view view;
  REQUIRE(view.watch(group(1), start));
  view.hear(host(1), members(5, 1), start);
  const auto list = view.members_of(group(1), start);
  REQUIRE(list->size() == 1);
  CHECK(list->front() == node_address{host(1), 5});
  CHECK(view.members_of(group(1), start + 1s) == list);
  CHECK(count(view, 1, start + 3s - 1ns) == 1);
  CHECK(count(view, 1, start + 3s) == 0);

  view.hear(host(1), members(5, 1), start + 4s);
  view.hear(host(1), members(5, 1), start + 6s);
  CHECK(count(view, 1, start + 9s - 1ns) == 1);
  CHECK(count(view, 1, start + 9s) == 0);
}

TEST_CASE("what is said about groups that nobody watches is not kept", "[multicast]") {
  group_view view;
  view.hear(host(1), members(5, 1), start);
  CHECK(view.members_of(group(1), start) == nullptr);
  REQUIRE(view.watch(group(1), start));
  CHECK(count(view, 1, start) == 0);
}

TEST_CASE("the members on this host are those of the last look at the names", "[multicast]") {
  group_view view;
  view.watch(group(1), start);
  view.watch(group(2), start);
  view.hear(host(1), members(5, 1), start);
  view.begin_host();
  for (const auto slot : std::to_array<std::uint16_t>({3, 4, 3})) view.add_on_host(group(1), slot);
  view.add_on_host(group(2), 3);
  view.add_on_host(group(9), 3);
  view.end_host();
  CHECK(count(view, 1, start) == 3);
  CHECK(count(view, 2, start) == 1);

  view.begin_host();
  view.add_on_host(group(1), 4);
  view.end_host();
  CHECK(count(view, 1, start) == 2);
  CHECK(count(view, 2, start) == 0);
  CHECK(count(view, 1, start + 3s) == 1);  // A name does not expire.
}

TEST_CASE("a member that cannot be reached is left out for a second", "[multicast]") {
  group_view view;
  view.watch(group(1), start);
  view.begin_host();
  view.add_on_host(group(1), 3);
  view.add_on_host(group(1), 4);
  view.end_host();
  view.suspend(group(1), {.host = {}, .slot = 3}, start);
  CHECK(count(view, 1, start) == 1);
  view.begin_host();
  view.add_on_host(group(1), 3);  // The member's name is still there.
  view.add_on_host(group(1), 4);
  view.end_host();
  CHECK(count(view, 1, start + 1s - 1ns) == 1);
  CHECK(count(view, 1, start + 1s) == 2);
}

TEST_CASE("neither a host nor all hosts can make a group grow for ever", "[multicast]") {
  group_view view;
  view.watch(group(1), start);
  for (std::uint16_t slot = 0; slot < 1000; ++slot) view.hear(host(1), members(slot, 1), start);
  CHECK(count(view, 1, start) == far_members_of_host_max);
  for (std::uint8_t n = 2; n < 20; ++n)
    for (std::uint16_t slot = 0; slot < 1000; ++slot) view.hear(host(n), members(slot, 1), start);
  CHECK(count(view, 1, start) == far_members_max);
  // The members who were first stay, and the others get room once those are gone.
  view.hear(host(30), members(1, 1), start + 3s);
  CHECK(count(view, 1, start + 3s) == 1);
}

TEST_CASE("the group that was used longest ago makes room for another", "[multicast]") {
  group_view view;
  for (std::size_t n = 0; n < watched_groups_max; ++n)
    REQUIRE(view.watch(numbered(n), start + n * 1ms));
  CHECK_FALSE(view.watch(numbered(0), start + 1h));
  CHECK(view.watch(numbered(1000), start + 1h));
  CHECK(view.watched_since(numbered(0)) == start);
  CHECK(view.watched_since(numbered(1)) == time_point{});
  CHECK(view.watched_since(numbered(2)) == start + 2ms);
  CHECK(view.watched_since(numbered(1000)) == start + 1h);
}

TEST_CASE("groups in use make no room, however many they are", "[multicast]") {
  constexpr std::size_t many = 2 * watched_groups_max;
  group_view view;
  for (std::size_t n = 0; n < many; ++n) REQUIRE(view.watch(numbered(n), start + n * 1ms));
  // A second round is over before any group was unused for a second.
  constexpr auto second = start + many * 1ms;
  for (std::size_t n = 0; n < many; ++n) {
    REQUIRE_FALSE(view.watch(numbered(n), second + n * 1ms));
    REQUIRE(view.watched_since(numbered(n)) == start + n * 1ms);
  }
  // Once nobody uses them, they make room for the next group.
  const auto later = second + many * 1ms + group_use_time;
  CHECK(view.watch(numbered(many), later));
  for (std::size_t n = 0; n <= many - watched_groups_max; ++n)
    CHECK(view.watched_since(numbered(n)) == time_point{});
  CHECK(view.watched_since(numbered(many - watched_groups_max + 1)) != time_point{});
  CHECK(view.watched_since(numbered(many)) == later);
}
