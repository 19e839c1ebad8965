#include "security/record_watch.hpp"

#include "security/values.hpp"

#include <catch2/catch.hpp>

#include <cstddef>
#include <string_view>
#include <vector>

using namespace cordma;

namespace {

using finding = record_watch::finding;

std::vector<std::byte> record(unsigned char type, std::size_t body) {
  std::vector<std::byte> bytes(5 + body, std::byte{'C'});
  bytes[0] = std::byte{type};
  bytes[1] = std::byte{3};
  bytes[2] = std::byte{3};
  bytes[3] = std::byte(body >> 8);
  bytes[4] = std::byte(body & 0xff);
  return bytes;
}

std::vector<std::byte> operator+(std::vector<std::byte> a, const std::vector<std::byte>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

TEST_CASE("records of each type and length are followed, however they are cut", "[security]") {
  const std::vector<std::byte> bytes = record(20, 1) + record(21, 2) + record(22, 0) +
                                       record(23, record_watch::body_bytes_max) + record(23, 300);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{2}, std::size_t{4}, std::size_t{5},
                                  std::size_t{1000}, bytes.size()}) {
    record_watch watch;
    std::size_t followed = 0;
    for (std::size_t at = 0; at < bytes.size(); at += piece) {
      const std::size_t n = std::min(piece, bytes.size() - at);
      const auto outcome = watch.follow(std::span{bytes}.subspan(at, n));
      REQUIRE(outcome.found == finding::records);
      followed += outcome.bytes;
    }
    CHECK(followed == bytes.size());
  }
}

TEST_CASE("text in the clear is found where a header is due, and nowhere else", "[security]") {
  const std::vector<std::byte> before = record(22, 7);
  const std::vector<std::byte> bytes = before + test::bytes_of("CRMA");
  record_watch whole;
  const auto outcome = whole.follow(bytes);
  CHECK(outcome.found == finding::clear_text);
  CHECK(outcome.bytes == before.size());

  record_watch at_once;
  CHECK(at_once.follow(test::bytes_of("GET /")).found == finding::clear_text);
  for (const std::byte type : {std::byte{0}, std::byte{19}, std::byte{24}, std::byte{255}}) {
    record_watch other;
    CHECK(other.follow(record(std::to_integer<unsigned char>(type), 0)).found ==
          finding::clear_text);
  }
}

TEST_CASE("a record that is too long, or of no version of TLS, ends the following", "[security]") {
  record_watch too_long;
  const auto long_one = too_long.follow(record(23, record_watch::body_bytes_max + 1));
  CHECK(long_one.found == finding::too_long);
  CHECK(long_one.bytes == 5);

  std::vector<std::byte> wrong = record(22, 4);
  wrong[1] = std::byte{2};
  record_watch not_tls;
  CHECK(not_tls.follow(wrong).found == finding::not_tls);
}
