#include "multicast/group.hpp"

#include <arpa/inet.h>
#include <catch2/catch.hpp>

using namespace softverbs;

namespace {

ibv_gid gid(const char* text) {
  ibv_gid result;
  REQUIRE(::inet_pton(AF_INET6, text, &result) == 1);
  return result;
}

}  // namespace

TEST_CASE("the multicast GIDs are those of the kernel", "[multicast]") {
  for (const char* text : {"::ffff:224.0.0.1", "::ffff:239.255.255.255", "ff0e::ffff:224.1.1.1",
                           "ff02::1", "ff12:401b:ffff::1"})
    CHECK(is_multicast(gid(text)));
  for (const char* text : {"::ffff:223.255.255.255", "::ffff:240.0.0.0", "fe80::1", "::1",
                           "::", "::224.0.0.1", "2001:db8::ff"})
    CHECK_FALSE(is_multicast(gid(text)));
}
