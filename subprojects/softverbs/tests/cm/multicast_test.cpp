#include "fixture.hpp"

#include <cerrno>
#include <vector>

using namespace softverbs;
using namespace softverbs::cm;
using namespace softverbs::cm::test;

namespace {

constexpr std::uint64_t group_user = 0x91;

struct one_member : two_processes {
  int join(std::uint32_t id, const address& group, std::uint16_t flags = 0) {
    rdma_ucm_join_mcast command{};
    command.response = reinterpret_cast<std::uintptr_t>(&answer);
    command.uid = group_user;
    command.id = id;
    command.addr_size = static_cast<std::uint16_t>(group.bytes());
    command.join_flags = flags;
    std::memcpy(&command.addr, &group.raw(), group.bytes());
    return client.write(RDMA_USER_CM_CMD_JOIN_MCAST, command, sizeof answer);
  }
  int leave(file& of, std::uint32_t number) {
    rdma_ucm_destroy_id command{};
    command.response = reinterpret_cast<std::uintptr_t>(&left);
    command.id = number;
    return of.write(RDMA_USER_CM_CMD_LEAVE_MCAST, command, sizeof left);
  }
  std::uint32_t with_device(std::uint16_t space = RDMA_PS_UDP) {
    const std::uint32_t id = client.create(space, client_user);
    REQUIRE(client.resolve(id, v4("127.0.0.1", 7001)) == 0);
    take(client, event_kind::address_resolved, client_user);
    return id;
  }

  rdma_ucm_create_id_resp answer{};
  rdma_ucm_destroy_id_resp left{};
};

}  // namespace

TEST_CASE("a member learns the group's address and key, and leaves", "[cm]") {
  one_member one;
  const std::uint32_t id = one.with_device();
  REQUIRE(one.join(id, v4("239.1.2.3")) == 0);
  const seen_event found = one.take(one.client, event_kind::multicast_join, group_user);
  CHECK(found.raw.id == one.answer.id);
  CHECK(found.raw.param.ud.qp_num == 0xffffff);
  CHECK(found.raw.param.ud.qkey == default_qkey);
  const ibv_gid group = v4("239.1.2.3").gid();
  CHECK(std::memcmp(found.raw.param.ud.ah_attr.grh.dgid, group.raw, sizeof group.raw) == 0);
  file other{one.client_process};
  CHECK(one.leave(other, one.answer.id) == EINVAL);
  CHECK(one.leave(one.client, one.answer.id + 1) == ENOENT);
  REQUIRE(one.leave(one.client, one.answer.id) == 0);
  CHECK(one.left.events_reported == 1);
  CHECK(one.leave(one.client, one.answer.id) == ENOENT);
  CHECK(one.client.destroy(id) == 2);
}

TEST_CASE("a group can be named by its MGID", "[cm]") {
  one_member one;
  sockaddr_ib raw{};
  raw.family = family_ib;
  const ibv_gid group = v6("ff12:401b::7").gid();
  std::memcpy(raw.address, &group, sizeof group);
  REQUIRE(one.join(one.with_device(), address{&raw, sizeof raw}) == 0);
  const seen_event found = one.take(one.client, event_kind::multicast_join, group_user);
  CHECK(std::memcmp(found.raw.param.ud.ah_attr.grh.dgid, group.raw, sizeof group.raw) == 0);
}

TEST_CASE("leaving and destroying take the events that wait along", "[cm]") {
  one_member one;
  const std::uint32_t id = one.with_device();
  REQUIRE(one.join(id, v4("239.1.2.3"), RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER) == 0);
  REQUIRE(one.leave(one.client, one.answer.id) == 0);
  CHECK(one.left.events_reported == 0);
  CHECK_FALSE(one.client.readable());
  REQUIRE(one.join(id, v6("ff12::77")) == 0);
  REQUIRE(one.join(id, v4("239.1.2.4")) == 0);
  CHECK(one.client.destroy(id) == 1);
  CHECK_FALSE(one.client.readable());
}

TEST_CASE("JOIN is refused with the kernel's errors", "[cm]") {
  one_member one;
  const std::uint32_t without_device = one.client.create(RDMA_PS_UDP, 1);
  CHECK(one.join(without_device, v4("239.1.2.3")) == EINVAL);
  REQUIRE(one.client.bind(without_device, v4("127.0.0.1")) == 0);
  CHECK(one.join(without_device, v4("239.1.2.3")) == EINVAL);  // A loopback address has no device.
  CHECK(one.join(one.with_device(RDMA_PS_TCP), v4("239.1.2.3")) == EINVAL);
  const std::uint32_t id = one.with_device();
  CHECK(one.join(id, v4("239.1.2.3"), RDMA_MC_JOIN_FLAG_RESERVED) == EINVAL);
  CHECK(one.join(id, v4("0.0.0.0")) == EINVAL);
  CHECK(one.join(id, address{}) == EINVAL);
  CHECK(one.join(4711, v4("239.1.2.3")) == ENOENT);
  CHECK(one.join(id, v4("10.1.2.3")) == EINVAL);
  CHECK(one.join(id, v6("fe80::1")) == EINVAL);
  const rdma_ucm_join_mcast command{};
  CHECK(one.client.write(RDMA_USER_CM_CMD_JOIN_MCAST, command, 4) == EINVAL);

  rdma_ucm_join_ip_mcast older{};
  older.response = reinterpret_cast<std::uintptr_t>(&one.answer);
  older.uid = group_user;
  older.id = id;
  CHECK(one.client.write(RDMA_USER_CM_CMD_JOIN_IP_MCAST, older, 4) == EINVAL);
  const address group = v4("239.1.2.3");
  std::memcpy(&older.addr, &group.raw(), group.bytes());
  CHECK(one.client.write(RDMA_USER_CM_CMD_JOIN_IP_MCAST, older, 3) == ENOSPC);
  REQUIRE(one.client.write(RDMA_USER_CM_CMD_JOIN_IP_MCAST, older, 4) == 0);
  one.take(one.client, event_kind::multicast_join, group_user);
}
