#include "../../lib/agent/protocol.hpp"

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <cstring>
#include <initializer_list>
#include <random>

using namespace cordma;
namespace ap = agent_protocol;

namespace {

ap::frame granted() {
  return {.kind = ap::kind::granted,
          .taken = 0x01020304,
          .tag = 0x1111111122222222,
          .lease = 0x3333333344444444,
          .length = 4096,
          .address = 0x00007f0000001000,
          .rkey = 0xa1b2c3d4,
          .access = verbs::access::remote_read,
          .duration = std::chrono::seconds{30},
          .isolation = std::uint8_t(isolation::exact)};
}

ap::frame_bytes_t with(std::size_t offset, std::initializer_list<int> values,
                       const ap::frame& f = granted()) {
  ap::frame_bytes_t bytes = ap::encode(f);
  for (const int v : values) bytes[offset++] = std::byte(v);
  return bytes;
}

}  // namespace

TEST_CASE("a frame arrives as it was sent", "[agent]") {
  const ap::frame sent = granted();
  const ap::frame got = ap::decode(ap::encode(sent));
  CHECK(got.kind == sent.kind);
  CHECK(got.taken == sent.taken);
  CHECK(got.tag == sent.tag);
  CHECK(got.lease == sent.lease);
  CHECK(got.length == sent.length);
  CHECK(got.address == sent.address);
  CHECK(got.rkey == sent.rkey);
  CHECK(got.access == sent.access);
  CHECK(got.duration == sent.duration);
  CHECK(got.isolation == sent.isolation);
}

TEST_CASE("a frame has the bytes that docs/agent-protocol.md gives", "[agent]") {
  const unsigned char wanted[ap::frame_bytes] = {
      0xad, 0xc0, 3,    3,    0x04, 0x03, 0x02, 0x01,  // magic, version, kind, taken
      0x22, 0x22, 0x22, 0x22, 0x11, 0x11, 0x11, 0x11,  // tag
      0x44, 0x44, 0x44, 0x44, 0x33, 0x33, 0x33, 0x33,  // lease
      0,    0x10, 0,    0,    0,    0,    0,    0,     // length
      0,    0x10, 0,    0,    0,    0x7f, 0,    0,     // address
      0x80, 0xc3, 0xc9, 1,    0,    0,    0,    0,     // duration
      0xd4, 0xc3, 0xb2, 0xa1, 4,    0,    0,    0,     // rkey, access
      0,    0,    0,    0,    3,    0,    0,    0};    // status, isolation, alignment
  const ap::frame_bytes_t bytes = ap::encode(granted());
  CHECK(std::memcmp(bytes.data(), wanted, sizeof wanted) == 0);
}

TEST_CASE("a payload arrives as it was sent, whatever its bytes are", "[agent]") {
  ap::payload all;
  for (std::size_t n = 0; n < all.size(); ++n) all[n] = std::byte(200 + n);
  CHECK(ap::payload_of(ap::decode(ap::encode(ap::proof_frame(all)))) == all);
  all.fill(std::byte{0xff});
  CHECK(ap::payload_of(ap::decode(ap::encode(ap::proof_frame(all)))) == all);
  for (const std::size_t size : {1u, 31u, 32u}) {
    const ap::frame got = ap::decode(ap::encode(ap::bytes_frame(std::span{all}.first(size))));
    CHECK(got.status == size);
    CHECK(ap::payload_of(got)[size - 1] == std::byte{0xff});
  }
}

TEST_CASE("what is no frame is refused, and the error says what was wrong", "[agent]") {
  const ap::frame credit{};
  const ap::frame refused{.kind = ap::kind::refused, .tag = 1, .status = 11};
  const ap::frame request{.kind = ap::kind::request,
                          .tag = 1,
                          .length = 1,
                          .access = verbs::access::remote_read,
                          .duration = std::chrono::seconds{1},
                          .alignment_log2 = 21};
  REQUIRE(ap::decode(ap::encode(credit)).kind == ap::kind::credit);
  REQUIRE(ap::decode(ap::encode(refused)).status == 11);
  const ap::frame note{.kind = ap::kind::note};
  REQUIRE(ap::decode(ap::encode(request)).alignment_log2 == 21);
  REQUIRE(ap::decode(ap::encode(note)).tag == 0);
  struct row {
    const char* says;
    ap::frame_bytes_t bytes;
  };
  const row rows[] = {
      {"magic 0x0", with(0, {0, 0})},
      {"version 0x1", with(2, {1})},
      {"kind 0x0", with(3, {0})},
      {"kind 0x10", with(3, {16})},
      {"tag 0x0", with(8, {0, 0, 0, 0, 0, 0, 0, 0})},
      {"lease 0x0", with(16, {0, 0, 0, 0, 0, 0, 0, 0})},
      {"length 0x0", with(24, {0, 0})},
      {"address 0xffffffffffffffff", with(32, {255, 255, 255, 255, 255, 255, 255, 255})},
      {"duration 0x0", with(40, {0, 0, 0, 0})},
      {"duration 0xff", with(40, {255, 255, 255, 255, 255, 255, 255, 255})},
      {"access 0x0", with(52, {0})},
      {"access 0x1", with(52, {1})},  // local_write
      {"access 0x12", with(52, {18})},
      {"access 0xff", with(52, {255, 255, 255, 255})},
      {"status 0x1", with(56, {1})},
      {"isolation 0x0", with(60, {0})},
      {"isolation 0x4", with(60, {4})},
      {"alignment 0x6", with(61, {6})},
      {"reserved 0x100", with(62, {0, 1})},
      {"lease 0x1", with(16, {1}, credit)},
      {"status 0x0", with(56, {0}, refused)},
      {"alignment 0x16", with(61, {22}, request)},
      {"address 0x1", with(32, {1}, note)},
      {"status 0x22", with(56, {34}, ap::end_frame)},
      {"status 0x0", with(56, {0}, ap::end_frame)},
      {"duration 0x1", with(40, {1}, ap::end_frame)},
      {"status 0x1", with(56, {1}, ap::proof_frame({}))},
  };
  for (const row& r : rows) {
    INFO(r.says);
    CHECK_THROWS_WITH(ap::decode(r.bytes), Catch::Contains(r.says));
  }
  const ap::frame_bytes_t whole = ap::encode(credit);
  for (const std::size_t size : {0u, 1u, 63u})
    CHECK_THROWS_WITH(ap::decode(std::span{whole}.first(size)), Catch::Contains("64 bytes"));
}

TEST_CASE("a frame that was accepted is the same when it is sent again", "[agent]") {
  std::mt19937 random{2026};
  int accepted = 0;
  for (int n = 0; n < 200'000; ++n) {
    ap::frame_bytes_t bytes = with(3, {int(1 + random() % 15)});
    for (unsigned changes = random() % 8; changes > 0; --changes)
      bytes[4 + random() % 60] = std::byte(random() % 3);
    try {
      const ap::frame f = ap::decode(bytes);
      ++accepted;
      REQUIRE(ap::encode(f) == bytes);
    } catch (const error& e) {
      REQUIRE(e.code() == make_error_code(errc::bad_frame));
    }
  }
  CHECK(accepted > 1000);
}
