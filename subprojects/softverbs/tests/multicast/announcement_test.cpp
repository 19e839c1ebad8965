#include "multicast/announcement.hpp"

#include "groups.hpp"
#include "link/listeners.hpp"

#include <catch2/catch.hpp>

#include <array>
#include <vector>

using namespace softverbs;
using softverbs::test::group;

namespace {

announcement with_groups(std::uint16_t count) {
  announcement made{};
  made.what = announcement::kind::members;
  made.slot = 7;
  made.count = count;
  for (std::uint16_t n = 0; n < count; ++n) made.groups[n] = group(static_cast<std::uint8_t>(n));
  return made;
}

bool is_read(const announcement& sent) {
  announcement result;
  return read(sent.bytes(), result);
}

}  // namespace

TEST_CASE("an announcement is read as it was written", "[multicast]") {
  for (const auto count : std::to_array<std::uint16_t>({1, 2, 64})) {
    announcement result{};
    REQUIRE(read(with_groups(count).bytes(), result));
    CHECK(result.slot == 7);
    CHECK(result.count == count);
    CHECK(result.groups[count - 1].raw[15] == count - 1);
  }
}

TEST_CASE("an announcement with a wrong byte is not read", "[multicast]") {
  announcement sent = with_groups(2);
  SECTION("magic") { sent.magic ^= 1; }
  SECTION("version") { ++sent.version; }
  SECTION("kind") { sent.what = static_cast<announcement::kind>(3); }
  SECTION("no kind") { sent.what = {}; }
  SECTION("slot") { sent.slot = process_slots; }
  SECTION("no group") { sent.count = 0; }
  SECTION("a group that is a host") { sent.groups[1].raw[12] = 10; }
  CHECK_FALSE(is_read(sent));
}

TEST_CASE("a datagram of another length is no announcement", "[multicast]") {
  const announcement sent = with_groups(2);
  std::array<std::byte, sizeof(announcement) + 16> bytes{};
  std::copy(sent.bytes().begin(), sent.bytes().end(), bytes.begin());
  announcement result;
  for (std::size_t length = 0; length <= bytes.size(); ++length)
    CHECK(read(std::span{bytes}.first(length), result) == (length == sent.bytes().size()));
}

TEST_CASE("an announcement that counts more groups than it can hold is not read", "[multicast]") {
  announcement sent = with_groups(64);
  sent.count = 65;
  announcement result;
  CHECK_FALSE(read(std::as_bytes(std::span{&sent, 1}), result));
}
