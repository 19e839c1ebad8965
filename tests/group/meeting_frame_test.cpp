#include "group/meeting_frame.hpp"

#include "group/meeting_member.hpp"
#include "support/outcome.hpp"
#include "support/text.hpp"

#include <catch2/catch.hpp>

#include <string>

using namespace cordma;
using namespace cordma::detail;
using namespace cordma::detail::meeting_frame;
using test::failure_of;

namespace {

roster some_roster(unsigned size) {
  roster all{.name = random_name()};
  for (unsigned rank = 0; rank < size; ++rank)
    all.members.push_back({"10.0.0.1:" + std::to_string(1 + rank), rank % 8});
  return all;
}

std::vector<bytes> parts_of(const roster& all) {
  std::vector<bytes> parts;
  for (std::size_t next = 0; next < all.members.size();) parts.push_back(encode_part(all, next));
  return parts;
}

bool is_same(const detail::group_member& a, const detail::group_member& b) {
  return a.endpoint == b.endpoint && a.host == b.host;
}

bytes some_arrival() { return encode(arrival{3, 5, {"node1:7000", 0x0102030405060708}}); }
bytes some_card() { return encode(card{random_name(), {"node1:7000", 9}}); }

std::string refusal_of(auto action) {
  const failure f = failure_of(action);
  CHECK(f.code == errc::bad_message);
  return f.to_string();
}

}  // namespace

TEST_CASE("an arrival is what it was", "[group]") {
  const arrival a = decode_arrival(some_arrival());
  CHECK(a.rank == 3);
  CHECK(a.size == 5);
  CHECK(is_same(a.member, {"node1:7000", 0x0102030405060708}));
}

TEST_CASE("a card is what it was", "[group]") {
  const card sent{random_name(), {"node1:7000", 9}};
  const card c = decode_card(encode(sent));
  CHECK(c.name == sent.name);
  CHECK(is_same(c.member, sent.member));
}

TEST_CASE("the longest arrival and card fit a message", "[group]") {
  const detail::group_member longest{std::string(endpoint_bytes_max - 2, 'x') + ":1", 1};
  CHECK(encode(arrival{1, 2, longest}).size() <= arrival_bytes_max);
  CHECK(encode(card{{}, longest}).size() <= arrival_bytes_max);
  CHECK(encode_refusal(std::string(1000, 'x')).size() <= arrival_bytes_max);
}

TEST_CASE("a roster of ten thousand ranks comes in parts, each of which fits", "[group]") {
  constexpr unsigned size = 10'000;
  const roster all = some_roster(size);
  const std::vector<bytes> parts = parts_of(all);
  CHECK(parts.size() > 1);
  roster got;
  for (const bytes& one : parts) {
    CHECK(one.size() <= part_bytes_max);
    decode_part(one, got, size);
  }
  CHECK(got.name == all.name);
  REQUIRE(got.members.size() == size);
  for (unsigned rank = 0; rank < size; ++rank)
    if (!is_same(got.members[rank], all.members[rank])) FAIL("rank " << rank << " is another");
}

TEST_CASE("parts that do not follow each other are refused", "[group]") {
  const roster all = some_roster(1000);
  const std::vector<bytes> parts = parts_of(all);
  roster got;
  CHECK_THAT(refusal_of([&] { decode_part(parts[1], got, 1000); }), Catch::Contains("after 0"));
  decode_part(parts[0], got, 1000);
  CHECK_THAT(refusal_of([&] { decode_part(parts[0], got, 1000); }), Catch::Contains("ranks 0 to "));
  const roster other = some_roster(1000);
  CHECK_THAT(refusal_of([&] { decode_part(parts_of(other)[1], got, 1000); }),
             Catch::Contains("parts of two groups"));
}

TEST_CASE("more ranks than the group has are refused", "[group]") {
  roster got;
  CHECK_THAT(refusal_of([&] { decode_part(parts_of(some_roster(3))[0], got, 2); }),
             Catch::Contains("ranks 0 to 3 of 2"));
}

TEST_CASE("a refusal is thrown with its text, of which only ASCII is shown", "[group]") {
  roster got;
  const failure f = failure_of([&] { decode_part(encode_refusal("no\x1b[2J room"), got, 2); });
  CHECK(f.code == errc::refused);
  CHECK_THAT(f.to_string(), Catch::Contains("rank 0 says: no?[2J room"));
}

TEST_CASE("a message that ends at any byte is refused", "[group]") {
  for (const bytes& whole : {some_arrival(), some_card(), parts_of(some_roster(2))[0]}) {
    for (std::size_t size = 0; size < whole.size(); ++size) {
      const std::span<const std::byte> cut{whole.data(), size};
      roster got;
      CHECK_THROWS_AS(decode_arrival(cut), error);
      CHECK_THROWS_AS(decode_card(cut), error);
      CHECK_THROWS_AS(decode_part(cut, got, 2), error);
    }
  }
}

TEST_CASE("bytes behind a message are refused", "[group]") {
  bytes longer = some_arrival();
  longer.push_back({});
  CHECK_THAT(refusal_of([&] { decode_arrival(longer); }), Catch::Contains("1 bytes too many"));
  longer = some_card();
  longer.push_back({});
  CHECK_THAT(refusal_of([&] { decode_card(longer); }), Catch::Contains("1 bytes too many"));
}

TEST_CASE("a message without the mark is refused", "[group]") {
  for (std::size_t at = 0; at < 8; ++at) {
    bytes other = some_arrival();
    other[at] ^= std::byte{1};
    CHECK_THAT(refusal_of([&] { decode_arrival(other); }), Catch::Contains("no mark of a group"));
  }
}

TEST_CASE("a member with an endpoint that is none is refused", "[group]") {
  for (const char* wrong : {"node1", "node1:0", "0.0.0.0:7", "a\nb:7"}) {
    INFO(wrong);
    CHECK_THAT(refusal_of([&] { decode_arrival(encode(arrival{1, 2, {wrong, 0}})); }),
               Catch::Contains("endpoint"));
  }
}

TEST_CASE("a part of an unknown kind is refused", "[group]") {
  bytes other = parts_of(some_roster(2))[0];
  other[8] = std::byte{3};
  roster got;
  CHECK_THAT(refusal_of([&] { decode_part(other, got, 2); }),
             Catch::Contains("a message of kind 3"));
}
