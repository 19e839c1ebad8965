#include "../../lib/messages/loan_frame.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace cordma::loan_protocol {

namespace {

using frame = std::array<std::byte, terms_bytes>;

frame encoded(const loan_terms& t) {
  frame out;
  encode(t, out.data());
  return out;
}

std::string wrong_with(const loan_terms& t) {
  const auto wrong = check(encoded(t).data());
  return wrong ? wrong->name + (" " + std::to_string(wrong->value)) : "";
}

}  // namespace

TEST_CASE("the terms of a loan are what docs/rpc-protocol.md says, and come back", "[messages]") {
  const loan_terms sent{.address = 0x0102030405060708,
                        .length = 0x1112131415161718,
                        .rkey = 0x21222324,
                        .isolation = isolation::exact_registered};
  const frame said = encoded(sent);
  constexpr std::array<unsigned char, terms_bytes> wanted{
      0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15,
      0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 2,    0,    0,    0};
  CHECK(std::ranges::equal(
      said, wanted, [](std::byte a, unsigned char b) { return unsigned(a) == unsigned{b}; }));
  const loan_terms heard = decode(said.data());
  CHECK(heard.address == sent.address);
  CHECK(heard.length == sent.length);
  CHECK(heard.rkey == sent.rkey);
  CHECK(heard.isolation == sent.isolation);
}

TEST_CASE("a loan has bytes, ends within the address space, and an isolation", "[messages]") {
  constexpr std::uint64_t most = UINT64_MAX;
  CHECK(wrong_with({.length = 1}).empty());
  CHECK(wrong_with({.length = most}).empty());
  CHECK(wrong_with({.address = most, .length = 1}).empty());
  CHECK(wrong_with({.address = 8}) == "the length of a loan 0");
  CHECK(wrong_with({.address = most, .length = 2}) == "the length of a loan 2");
  CHECK(wrong_with({.address = 2, .length = most}) ==
        "the length of a loan " + std::to_string(most));
  CHECK(wrong_with({.length = 1, .isolation = isolation{0}}) == "the isolation of a loan 0");
  CHECK(wrong_with({.length = 1, .isolation = isolation{4}}) == "the isolation of a loan 4");
  frame reserved = encoded({.length = 1});
  reserved.back() = std::byte{1};
  REQUIRE(check(reserved.data()));
  CHECK(check(reserved.data())->value == 0x0100'0003);
}

}  // namespace cordma::loan_protocol
