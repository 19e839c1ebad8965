#include <cordma/datagram/datagram.hpp>

#include <cordma/base/error.hpp>

#include <catch2/catch.hpp>

#include <string>
#include <vector>

using namespace cordma;
using Catch::Matchers::Contains;

namespace {

std::string refusal_of(auto call) {
  try {
    static_cast<void>(call());
  } catch (const error& e) {
    return e.failure().to_string();
  }
  return "nothing was refused";
}

std::string refused(std::string_view text) {
  return refusal_of([&] { return datagram_address::parse(text); });
}

}  // namespace

TEST_CASE("an address goes through text and bytes unchanged", "[datagram]") {
  const char* const text =
      GENERATE("qpn=17,qkey=0x11111111,gid=::ffff:10.0.0.1", "qpn=16777215,qkey=0x0,gid=ff12::1",
               "qpn=1,qkey=0xffffffff,lid=7", "qpn=2,qkey=0x5,gid=fe80::1,lid=9,sl=3,tc=104");
  const datagram_address address = datagram_address::parse(text);
  CHECK(address.to_string() == text);
  const datagram_address again = datagram_address::decode(address.encode());
  CHECK(again.to_string() == text);
  CHECK(again == address);
}

TEST_CASE("the fields of an address come in any order, decimal or hexadecimal", "[datagram]") {
  const auto address = datagram_address::parse("gid=fe80::1,qkey=17,qpn=0x11");
  CHECK(address.qpn == 17);
  CHECK(address.qkey == 17);
  CHECK(address.path.is_global);
}

TEST_CASE("an address that is none is refused, and the field named", "[datagram]") {
  CHECK_THAT(refused(""), Contains("no qpn") && Contains("datagram_address::parse"));
  CHECK_THAT(refused("qpn=1"), Contains("neither a gid nor a lid"));
  CHECK_THAT(refused("qpn=16777216,lid=1"), Contains("qpn=16777216") && Contains("16777215"));
  CHECK_THAT(refused("qpn=x,lid=1"), Contains("qpn=x"));
  CHECK_THAT(refused("qpn=1 ,lid=1"), Contains("qpn=1 "));
  CHECK_THAT(refused("qpn,lid=1"), Contains("qpn="));
  CHECK_THAT(refused("qpn=1,gid=10.0.0.1"), Contains("gid=10.0.0.1") && Contains("::ffff:"));
  CHECK_THAT(refused("qpn=1,lid=65536"), Contains("lid=65536"));
  CHECK_THAT(refused("qpn=1,lid=1,sl=16"), Contains("sl=16"));
  CHECK_THAT(refused("qpn=1,lid=1,port=4"), Contains("'port'") && Contains("the fields are"));
  CHECK_THAT(refused(std::string(10'000, 'q')), Contains("the fields are"));
}

TEST_CASE("bytes that are no address are refused", "[datagram]") {
  auto bytes = datagram_address::parse("qpn=1,lid=1").encode();
  const auto decoded = [&](std::size_t size) {
    return refusal_of([&] { return datagram_address::decode(std::span{bytes}.first(size)); });
  };
  CHECK_THAT(decoded(31), Contains("31 bytes") && Contains("takes 32"));
  CHECK_THAT(decoded(0), Contains("0 bytes"));
  bytes[19] = std::byte{1};
  CHECK_THAT(decoded(32), Contains("qpn 16777217"));
  bytes[19] = std::byte{};
  bytes[27] = std::byte{16};
  CHECK_THAT(decoded(32), Contains("sl 16"));
  bytes[27] = bytes[24] = std::byte{};
  CHECK_THAT(decoded(32), Contains("neither a gid nor a lid"));
}
