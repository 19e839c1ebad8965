#include "datagram/route_cache.hpp"

#include "support/device.hpp"

#include <cordma/verbs/device.hpp>
#include <cordma/verbs/gid.hpp>
#include <cordma/verbs/protection_domain.hpp>

#include <catch2/catch.hpp>

#include <optional>

using namespace cordma;
using detail::path_key;
using detail::route;
using detail::route_cache;

namespace {

/// A cache for two routes, all of which lead to this host's own port, with other traffic classes.
struct small_cache {
  verbs::context ctx{test::device_name()};
  verbs::port_info port = ctx.active_port();
  verbs::gid_entry gid = verbs::choose_gid(ctx.gid_table(port.number));
  verbs::protection_domain pd{ctx};
  route_cache cache{2};

  [[nodiscard]] verbs::address_vector path(std::uint8_t traffic_class) const {
    auto to = verbs::address_vector::by_gid(gid.gid, gid.index, port.lid);
    to.traffic_class = traffic_class;
    return to;
  }
  [[nodiscard]] path_key key(std::uint8_t traffic_class) const {
    return path_key{path(traffic_class)};
  }
  void insert(std::uint8_t traffic_class) {
    cache.insert(key(traffic_class), {pd, port.number, path(traffic_class)});
  }
  [[nodiscard]] bool has(std::uint8_t traffic_class) {
    return cache.find(key(traffic_class)) != nullptr;
  }
};

}  // namespace

TEST_CASE("paths are others if any field of theirs is", "[datagram]") {
  const verbs::address_vector one = verbs::address_vector::by_gid({}, 1, 7);
  verbs::address_vector other = one;
  CHECK(path_key{one} == path_key{other});
  SECTION("gid") { other.gid.raw[15] = 1; }
  SECTION("row of the own table") { other.gid_index = 2; }
  SECTION("lid") { other.lid = 8; }
  SECTION("traffic class") { other.traffic_class = 1; }
  SECTION("hop limit") { other.hop_limit = 1; }
  SECTION("flow label") { other.flow_label = 0xfffff; }
  SECTION("service level") { other.service_level = 15; }
  SECTION("rate") { other.static_rate = IBV_RATE_10_GBPS; }
  SECTION("with and without GRH") { other.is_global = false; }
  if (path_key{one} == path_key{other}) CHECK(one.is_global == other.is_global);
  other = one;
  CHECK(path_key::hash{}(path_key{one}) == path_key::hash{}(path_key{other}));
}

TEST_CASE("the route that was used least recently goes first", "[datagram][device]") {
  small_cache c;
  c.insert(0);
  c.insert(4);
  CHECK(c.has(0));
  c.insert(8);
  CHECK(c.cache.size() == 3);
  CHECK(c.cache.trim(0, 0) == 1);
  CHECK_FALSE(c.has(4));
  CHECK(c.has(0));
  CHECK(c.has(8));
}

TEST_CASE("a route that a request holds stays, and so does one whose requests are in flight",
          "[datagram][device]") {
  small_cache c;
  c.insert(0);
  std::optional<detail::counted_ref<route>> holder{*c.cache.find(c.key(0))};
  c.insert(4);
  c.insert(8);
  CHECK(c.cache.trim(5, 0) == 1);  // The one that is held is older.
  CHECK(c.has(0));
  c.insert(12);
  holder.reset();
  CHECK(c.has(8));
  CHECK(c.has(12));
  // Five requests were posted, and the last three have not ended.
  CHECK(c.cache.trim(5, 3) == 0);
  CHECK(c.cache.size() == 3);
  // Two more were posted: of those that may name the handle, one has not ended.
  CHECK(c.cache.trim(7, 3) == 0);
  CHECK(c.cache.trim(7, 2) == 1);
  CHECK(c.cache.size() == 2);
}

TEST_CASE("a route that is used again does not go for what was before", "[datagram][device]") {
  small_cache c;
  for (const int n : {0, 4, 8}) c.insert(std::uint8_t(n));
  CHECK(c.cache.trim(1, 1) == 0);
  CHECK(c.has(0));
  c.insert(12);
  CHECK(c.cache.trim(2, 0) == 2);
  CHECK(c.has(0));
  CHECK(c.has(12));
}

TEST_CASE("the route that was made last stays, however many others are held",
          "[datagram][device]") {
  small_cache c;
  c.insert(0);
  c.insert(4);
  const detail::counted_ref<route> one{*c.cache.find(c.key(0))};
  const detail::counted_ref<route> other{*c.cache.find(c.key(4))};
  c.insert(8);
  CHECK(c.cache.trim(3, 0) == 0);
  CHECK(c.has(8));
}

TEST_CASE("requests that a failed doorbell took back do not free a handle early",
          "[datagram][device]") {
  small_cache c;
  for (const int n : {0, 4, 8}) c.insert(std::uint8_t(n));
  CHECK(c.cache.trim(105, 8) == 0);
  CHECK(c.cache.trim(100, 3) == 0);  // Five were taken back: three are in flight.
  CHECK(c.cache.trim(103, 3) == 1);
}
