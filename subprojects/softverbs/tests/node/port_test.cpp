#include "node/port.hpp"

#include "link/local_listener.hpp"

#include <catch2/catch.hpp>

#include <cerrno>
#include <string>
#include <system_error>

using namespace softverbs;

namespace {

// 240.0.0.0/4 is reserved: no interface has an address of it. 127.9.9.9 is this host.
constexpr std::uint32_t own = 0xf0000705;  // 240.0.7.5
constexpr std::uint32_t other = 0xf0000008;

/// The text of the error; empty: there is no error.
std::string refusal(const char* list, std::uint32_t address = own) {
  try {
    const subnet made{list, address};
    return {};
  } catch (const std::system_error& error) {
    CHECK(error.code().value() == EINVAL);
    return error.what();
  }
}

}  // namespace

TEST_CASE("without a list, LIDs are the low halves of addresses of one high half", "[node]") {
  const subnet is{"", own};
  CHECK(is.own_lid() == 0x0705);
  CHECK(is.own_address() == own);
  CHECK(is.address_of(0x0705) == own);
  CHECK(is.address_of(8) == other);
  CHECK(is.lid_of(other) == 8);
  CHECK_FALSE(is.address_of(0));
  CHECK_FALSE(is.address_of(0xc000));  // A multicast LID.
}

TEST_CASE("a list gives hosts LIDs of any address", "[node]") {
  const subnet is{"7,0xb=241.0.0.1", own};
  CHECK(is.own_lid() == 7);
  CHECK(is.address_of(7) == own);
  CHECK(is.address_of(11) == 0xf1000001);
  CHECK(is.lid_of(own) == 7);
  CHECK(is.lid_of(0xf1000001) == 11);
  CHECK(is.address_of(8) == other);  // Hosts that are not listed keep the rule.
}

TEST_CASE("one list may serve all hosts: each finds itself in it", "[node]") {
  const subnet is{"7=127.9.9.9,8=241.0.0.1", own};
  CHECK(is.own_lid() == 7);
  CHECK(is.own_address() == 0x7f090909);
}

TEST_CASE("a bad list of LIDs is refused by name", "[node]") {
  using Catch::Contains;
  CHECK_THAT(refusal("0"), Contains("SOFTVERBS_LID") && Contains("'0'"));
  CHECK_THAT(refusal("0xc000"), Contains("'0xc000' has no LID from 1 to 0xbfff"));
  CHECK_THAT(refusal("seven"), Contains("'seven'"));
  CHECK(refusal("7,").empty());
  CHECK_THAT(refusal("7,,8=241.0.0.1"), Contains("''"));
  CHECK_THAT(refusal("7=host"), Contains("'7=host' has no IPv4 address"));
  CHECK_THAT(refusal("7,7=241.0.0.1"), Contains("two hosts have LID 7"));
  CHECK_THAT(refusal("0x705=241.0.0.1"), Contains("two hosts have LID 1797"));
  CHECK_THAT(refusal("7,8=241.0.0.1,8=241.0.0.2"), Contains("two hosts have LID 8"));
  CHECK_THAT(refusal("7,8=241.0.0.1,9=241.0.0.1"), Contains("has 241.0.0.1 twice"));
  CHECK_THAT(refusal("7,8=127.9.9.9"), Contains("this host twice"));
  CHECK_THAT(refusal("", 0xf000c005), Contains("240.0.192.5 is no LID: set SOFTVERBS_LID"));
  CHECK_THAT(refusal("", 0xf0000000), Contains("240.0.0.0 is no LID"));
  CHECK(refusal("7", 0xf000c005).empty());
}

// Other tests of this host may run with LID 1, too.
TEST_CASE("all processes of a host have one LID", "[node]") {
  const unique_fd first = claim_lid(1);
  const unique_fd second = claim_lid(1);
  CHECK(second);
  try {
    claim_lid(2);
    FAIL("the host has two LIDs");
  } catch (const std::system_error& error) {
    CHECK(error.code().value() == EADDRINUSE);
    CHECK_THAT(error.what(),
               Catch::Contains("LID 1 in process") && Catch::Contains("LID 2 in this one"));
  }
}
