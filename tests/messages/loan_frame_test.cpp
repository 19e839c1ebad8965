#include "../../lib/messages/message_frame.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <array>
#include <string>

namespace cordma::message_protocol {

namespace {

using loan = std::array<std::byte, loan_bytes>;

loan encoded(const loan_terms& t) {
  loan out;
  encode_loan(t, out.data());
  return out;
}

std::string wrong_with(const loan& l) {
  try {
    check_loan(l.data(), "test");
    return "";
  } catch (const error& e) {
    CHECK(e.failure().code == errc::bad_frame);
    return std::string{e.failure().detail.view()};
  }
}
std::string wrong_with(const loan_terms& t) { return wrong_with(encoded(t)); }

}  // namespace

TEST_CASE("the terms of a loan are what docs/rpc-protocol.md says, and come back", "[messages]") {
  const loan_terms sent{.address = 0x0102030405060708,
                        .length = 0x1112131415161718,
                        .rkey = 0x21222324,
                        .isolation = isolation::exact_registered};
  const loan said = encoded(sent);
  constexpr std::array<unsigned char, loan_bytes> wanted{
      0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01, 0x18, 0x17, 0x16, 0x15,
      0x14, 0x13, 0x12, 0x11, 0x24, 0x23, 0x22, 0x21, 2,    0,    0,    0};
  CHECK(std::ranges::equal(
      said, wanted, [](std::byte a, unsigned char b) { return unsigned(a) == unsigned{b}; }));
  const loan_terms heard = decode_loan(said.data());
  CHECK(heard.address == sent.address);
  CHECK(heard.length == sent.length);
  CHECK(heard.rkey == sent.rkey);
  CHECK(heard.isolation == sent.isolation);
}

TEST_CASE("a loan has bytes, ends within the address space, and an isolation", "[messages]") {
  constexpr std::uint64_t most = UINT64_MAX;
  CHECK(wrong_with(loan_terms{.length = 1}).empty());
  CHECK(wrong_with(loan_terms{.length = most}).empty());
  CHECK(wrong_with(loan_terms{.address = most, .length = 1}).empty());
  CHECK(wrong_with(loan_terms{.address = 8}) == "the length of a loan 0x0");
  CHECK(wrong_with(loan_terms{.address = most, .length = 2}) == "the length of a loan 0x2");
  CHECK(wrong_with(loan_terms{.address = 2, .length = most}) ==
        "the length of a loan 0xffffffffffffffff");
  CHECK(wrong_with(loan_terms{.length = 1, .isolation = isolation{0}}) ==
        "the isolation of a loan 0x0");
  CHECK(wrong_with(loan_terms{.length = 1, .isolation = isolation{4}}) ==
        "the isolation of a loan 0x4");
  loan reserved = encoded({.length = 1});
  reserved.back() = std::byte{1};
  CHECK(wrong_with(reserved) == "the isolation of a loan 0x1000003");
}

}  // namespace cordma::message_protocol
