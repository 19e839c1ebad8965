#include "connection/connection_state.hpp"

#include <cordma/base/error.hpp>
#include <cordma/security/credentials.hpp>

#include <catch2/catch.hpp>

#include <cmath>
#include <type_traits>
#include <vector>

using namespace cordma;
using namespace std::chrono_literals;

namespace {

const verbs::device_limits limits{.qp_wr_max = 1000,
                                  .sge_max = 16,
                                  .qp_rd_atom_max = 16,
                                  .qp_init_rd_atom_max = 8,
                                  .port_count = 1};
const verbs::port_info port{
    .number = 1, .mtu_active = IBV_MTU_1024, .gid_count = 4, .pkey_count = 2};

}  // namespace

TEST_CASE("the defaults fit a modest device", "[connection][N9]") {
  CHECK_NOTHROW(check(connection_options{}, limits, port));
}

TEST_CASE("with shared receives those of its own do not count", "[connection]") {
  connection_options o;
  o.capabilities.recv_wr_max = 0;
  CHECK_THROWS_AS(check(o, limits, port), error);
  o.receives_from = reinterpret_cast<shared_receives*>(&o);  // The pool is not looked at.
  CHECK_NOTHROW(check(o, limits, port));
}

TEST_CASE("preposted receives are the queue pair's own, as many as it has", "[connection][N9]") {
  connection_options o;
  const char* says = "";
  SECTION("more than it has") {
    o.preposted = 17;
    o.capabilities.recv_wr_max = 16;
    says = "preposted, of capabilities.recv_wr_max, 17 is not between 0 and 16";
  }
  SECTION("longer than a message can be") {
    o.preposted = 1;
    o.preposted_bytes = (std::size_t{1} << 31) + 1;
    says = "preposted_bytes 2147483649 is not between 0 and 2147483648";
  }
  SECTION("a length beyond all numbers") {
    o.preposted = 1;
    o.preposted_bytes = SIZE_MAX;
    says = "preposted_bytes";
  }
  SECTION("beside a pool") {
    o.preposted = 3;
    o.receives_from = reinterpret_cast<shared_receives*>(&o);  // The pool is not looked at.
    says = "preposted 3 beside receives_from";
  }
  CHECK_THROWS_WITH(check(o, limits, port), Catch::Contains(says));
  o.preposted = 0;
  CHECK_NOTHROW(check(o, limits, port));
}

TEST_CASE("a lost peer shows within two seconds by default", "[connection]") {
  const connection_options o;
  CHECK(4.096e-6 * std::pow(2, o.timeout) * (o.retry_cnt + 1) <= 2.0);
  CHECK(o.rnr_retry < 7);
  CHECK(o.min_rnr_timer != 0);
}

TEST_CASE("an option above its limit is refused, both numbers named", "[connection][N9]") {
  connection_options o;
  const char* says = "";
  SECTION("send depth") {
    o.capabilities.send_wr_max = 1001;
    says = "send_wr_max 1001 exceeds the device's 1000";
  }
  SECTION("P_Key") {
    o.pkey_index = 2;
    says = "pkey_index 2 is not between 0 and 1";
  }
  SECTION("GID") {
    o.gid_index = 4;
    says = "gid_index 4 is not between 0 and 3";
  }
  SECTION("service level") {
    o.fabric.service_level = std::uint8_t{16};
    says = "fabric.service_level 16 is not between 0 and 15";
  }
  SECTION("MTU") {
    o.fabric.mtu = IBV_MTU_2048;
    says = "fabric.mtu 2048 is not between 256 and 1024";
  }
  SECTION("what is no MTU") {
    o.fabric.mtu = ibv_mtu(6);
    says = "fabric.mtu (an ibv_mtu) 6 is not between 1 and 5";
  }
  SECTION("flow label") {
    o.fabric.flow_label = 1u << 20;
    says = "fabric.flow_label 1048576 is not between 0 and 1048575";
  }
  SECTION("hop limit") {
    o.fabric.hop_limit = std::uint8_t{0};
    says = "fabric.hop_limit 0 is not between 1 and 255";
  }
  SECTION("static rate") {
    o.fabric.static_rate = ibv_rate(1);
    says = "fabric.static_rate 1 is no ibv_rate";
  }
  SECTION("rd_atomic") {
    o.rd_atomic_max = 9;
    says = "rd_atomic_max 9 is not between 0 and 8";
  }
  SECTION("no READs, which an agent needs") {
    o.rd_atomic_max = 0;
    says = "rd_atomic_max beside an agent 0 is not between 1 and 8";
  }
  SECTION("retrying for ever without a receive") {
    o.rnr_retry = 7;
    says = "rnr_retry 7 retries for ever when the peer posts no receive; 0 to 6";
  }
  SECTION("waiting 655 ms for a receive") {
    o.min_rnr_timer = 0;
    says = "min_rnr_timer 0 is not between 1 and 31";
  }
  SECTION("waiting for ever for a packet") {
    o.timeout = 0;
    says = "timeout 0 waits for ever for a lost packet; 1 to 31";
  }
  SECTION("a heartbeat without rest") {
    o.heartbeat.interval = 0ms;
    says = "heartbeat.interval 0 ms is not between 1 ms and 86400000 ms";
  }
  SECTION("a heartbeat that misses nothing") {
    o.heartbeat.misses = 0;
    says = "heartbeat.misses 0 is not between 1 and 1000";
  }
  SECTION("no room for what an agent needs") {
    o.capabilities.send_wr_max = 1000;
    says = "send_wr_max beside an agent 1000 is not between 1 and 996";
  }
  SECTION("an agent that lends nothing at all") {
    o.agent.lending.leases_max = 0;
    says = "lending.leases_max 0 is not between 1 and 1048576";
  }
  SECTION("no time to connect") {
    o.connect_timeout = 0ms;
    says = "connect_timeout 0 ms is not between 1 ms and 86400000 ms";
  }
  SECTION("no time to close") {
    o.close_timeout = -1ms;
    says = "close_timeout -1 ms is not between 1 ms and 86400000 ms";
  }
  CHECK_THROWS_WITH(check(o, limits, port), Catch::Contains(says));
}

TEST_CASE("changes take the place of what they name, and of nothing else", "[connection]") {
  connection_options base;
  base.port = 2;
  base.gid_index = 3;
  base.rnr_retry = 1;
  base.heartbeat.enabled = false;
  base.agent.enabled = false;
  const connection_options same = changed(base, {});
  CHECK(same.port == 2);
  CHECK(same.gid_index == 3);
  CHECK(same.rnr_retry == 1);
  CHECK_FALSE(same.heartbeat.enabled);
  const connection_options other =
      changed(base, {.timeout = 12, .heartbeat = {{.misses = 7}}, .connect_timeout = 1s});
  CHECK(other.timeout == 12);
  CHECK(other.heartbeat.enabled);
  CHECK(other.heartbeat.misses == 7);
  CHECK(other.connect_timeout == 1s);
  CHECK(other.rnr_retry == 1);
  CHECK_FALSE(other.agent.enabled);
}

TEST_CASE("changes of a fabric take the place of the members that are set", "[connection]") {
  connection_options base;
  base.fabric = {.service_level = 3, .traffic_class = 104, .hop_limit = 2};
  const connection_options other = changed(base, {.fabric = {.traffic_class = 0, .flow_label = 7}});
  CHECK(other.fabric.service_level == 3);
  CHECK(other.fabric.traffic_class == 0);
  CHECK(other.fabric.flow_label == 7);
  CHECK(other.fabric.hop_limit == 2);
  CHECK_FALSE(other.fabric.mtu);
  CHECK_FALSE(other.fabric.static_rate);
}

TEST_CASE("options own nothing, and so are safe in braces in a co_await", "[connection]") {
  CHECK(std::is_trivially_copyable_v<connection_options>);
  CHECK(std::is_trivially_copyable_v<connection_changes>);
}

TEST_CASE("whole options take the place of all but what they leave unset", "[connection]") {
  connection_options base;
  base.port = 2;
  base.gid_index = 3;
  base.pkey_index = std::uint16_t{1};
  base.fabric.service_level = std::uint8_t{3};
  base.rnr_retry = 1;
  const credentials key = credentials::psk({"db-1", std::vector(32, std::byte{7})});
  base.credentials = &key;
  const connection_options whole{.retry_cnt = 2};
  const connection_options mixed = changed(base, whole);
  CHECK(mixed.port == 2);
  CHECK(mixed.gid_index == 3);
  CHECK(mixed.pkey_index == 1);
  CHECK(mixed.fabric.service_level == 3);
  CHECK(mixed.credentials == &key);
  CHECK(changed(base, {.credentials = nullptr}).credentials == nullptr);
  CHECK(mixed.retry_cnt == 2);
  CHECK(mixed.rnr_retry == connection_options{}.rnr_retry);
}

TEST_CASE("XRC is refused by name where the device has none", "[connection]") {
  connection_options o;
  o.transport = verbs::queue_pair_type::xrc_initiator;
  CHECK_THROWS_WITH(check(o, limits, port),
                    Catch::Contains("IBV_DEVICE_XRC") && Catch::Contains("not supported"));
  verbs::device_limits with_xrc = limits;
  with_xrc.xrc = true;
  CHECK_NOTHROW(check(o, with_xrc, port));
  o.transport = verbs::queue_pair_type::xrc_target;
  CHECK_THROWS_WITH(check(o, with_xrc, port), Catch::Contains("runtime::open_xrc_domain"));
}

TEST_CASE("a connection is RC or UC, and a plain one by rdma_cm RC", "[connection]") {
  connection_options o;
  o.transport = verbs::queue_pair_type::uc;
  o.rd_atomic_max = 0;  // Agents over UC need none.
  CHECK_NOTHROW(check(o, limits, port));
  SECTION("plain") {
    o.plain = true;
    CHECK_THROWS_WITH(check(o, limits, port), Catch::Contains("connect_plain"));
  }
  SECTION("datagrams") {
    o.transport = verbs::queue_pair_type::ud;
    CHECK_THROWS_WITH(check(o, limits, port), Catch::Contains("datagram_socket"));
  }
}
