#include "fixture.hpp"

#include "link/ip_address.hpp"
#include "node/gid_table.hpp"
#include "object/context.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <linux/capability.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <thread>

using namespace softverbs;
using namespace softverbs::cm;
using namespace softverbs::cm::test;

namespace {

address service(std::uint64_t id, std::uint64_t mask, std::uint8_t last_byte = 0) {
  sockaddr_ib raw{};
  raw.family = family_ib;
  raw.service = htobe64(id);
  raw.service_mask = htobe64(mask);
  raw.address[15] = last_byte;
  return address{&raw, sizeof raw};
}

constexpr std::uint64_t tcp_service = 0x01060000;
constexpr std::uint64_t port_space = 0xffff'ffff'ffff'0000;

std::uint16_t port_of(const __kernel_sockaddr_storage& from) {
  return address{&from, sizeof from}.port();
}

/// IPv4 addresses of this host, which may have none.
std::vector<address> addresses_beside_loopback() {
  std::vector<address> result;
  for (int index = 0; index < gid_count(); ++index) {
    const ibv_gid own = gid_at(index);
    if (is_mapped(own) && !is_loopback(own))
      result.emplace_back(endpoint{mapped<in6_addr>(ip4_of(own)), 0, 0});
  }
  return result;
}

}  // namespace

TEST_CASE("AF_IB's wildcard is bound without an engine, as librdmacm's first identifier is",
          "[cm]") {
  two_processes both;
  file idle{both.client_process};
  idle.events.has_engine = false;
  const std::uint32_t id = idle.create(RDMA_PS_IB, some_user, IBV_QPT_RC);
  CHECK(idle.bind(id, service(tcp_service, port_space)) == 0);
  const auto answer = idle.query(id);
  CHECK(answer.src_size == sizeof(sockaddr_ib));
  CHECK(answer.node_guid == 0);
  CHECK(port_of(answer.src_addr) >= 32768);
  const auto gids = idle.query(id, RDMA_USER_CM_QUERY_GID);
  CHECK(gids.src_size == sizeof(sockaddr_ib));
  CHECK(idle.bind(id, service(tcp_service, port_space)) == EINVAL);  // The identifier is bound.
  CHECK(idle.resolve(id, service(tcp_service, port_space)) == ENODEV);
  CHECK(idle.listen(id) == 0);
}

TEST_CASE("AF_IB's services are those of the port space", "[cm]") {
  network all;
  process one{all};
  file in{one};
  const auto bound = [&](std::uint16_t space, std::uint64_t id) {
    return in.bind(in.create(space, some_user), service(id, port_space));
  };
  CHECK(bound(RDMA_PS_IB, 0x013f0000) == 0);
  CHECK(bound(RDMA_PS_IB, 0x01110000) == 0);
  CHECK(bound(RDMA_PS_TCP, tcp_service) == 0);
  CHECK(bound(RDMA_PS_UDP, 0x01110000) == 0);
  CHECK(bound(RDMA_PS_TCP, 0x01110000) == EPROTONOSUPPORT);
  CHECK(bound(RDMA_PS_IB, 0x01990000) == EPROTONOSUPPORT);
  const std::uint32_t id = in.create(RDMA_PS_IB, some_user);
  CHECK(in.bind(id, service(tcp_service, port_space, 9)) == ENODEV);  // The GID is another's.
}

TEST_CASE("bound addresses have a port, and a device if they are specific", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t wild = in.create(RDMA_PS_TCP, some_user);
  CHECK(in.bind(wild, v4("0.0.0.0")) == 0);
  auto answer = in.query(wild);
  CHECK(answer.src_size == sizeof(sockaddr_in));
  CHECK(answer.dst_size == sizeof(sockaddr_in));
  CHECK(answer.node_guid == 0);
  CHECK(port_of(answer.src_addr) != 0);
  const std::uint32_t near = in.create(RDMA_PS_TCP, some_user);
  CHECK(in.bind(near, v4("127.0.0.1", 7000)) == 0);
  answer = in.query(near);
  CHECK(answer.node_guid == 0);
  CHECK(port_of(answer.src_addr) == 7000);
  const std::uint32_t six = in.create(RDMA_PS_TCP, some_user);
  CHECK(in.bind(six, v6("::1", 7001)) == 0);
  answer = in.query(six);
  CHECK(answer.src_size == sizeof(sockaddr_in6));
  CHECK(port_of(answer.src_addr) == 7001);
  for (const address& own : addresses_beside_loopback()) {
    const std::uint32_t specific = in.create(RDMA_PS_TCP, some_user);
    CHECK(in.bind(specific, own) == 0);
    answer = in.query(specific);
    CHECK(answer.node_guid == limits().node_guid);
    CHECK(answer.port_num == 1);
  }
}

TEST_CASE("addresses that cannot be bound are refused with the kernel's error", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  CHECK(in.bind(id, v4("240.0.0.1")) == EADDRNOTAVAIL);
  CHECK(in.bind(id, v6("fe80::1")) == EINVAL);  // No interface is named.
  both.all.bind_error = EADDRINUSE;
  CHECK(in.bind(id, v4("127.0.0.1", 7000)) == EADDRINUSE);
  // Without the capability, root may not either. A thread has its own capabilities.
  bool may = true;
  int error = 0;
  std::thread{[&] {
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[_LINUX_CAPABILITY_U32S_3]{};
    (void)!::syscall(SYS_capset, &header, none);
    may = may_bind_low_ports();
    error = in.bind(id, v4("127.0.0.1", 80));
  }}.join();
  CHECK_FALSE(may);
  CHECK(error == EACCES);
  if (::geteuid() == 0) CHECK(may_bind_low_ports());

  rdma_ucm_bind command{};
  command.id = id;
  const address good = v4("127.0.0.1", 7000);
  std::memcpy(&command.addr, &good.raw(), good.bytes());
  const auto refused = [&](std::uint16_t size, std::uint16_t reserved) {
    command.addr_size = size;
    command.reserved = reserved;
    return in.write(RDMA_USER_CM_CMD_BIND, command);
  };
  CHECK(refused(0, 0) == EINVAL);
  CHECK(refused(15, 0) == EINVAL);
  CHECK(refused(28, 0) == EINVAL);
  CHECK(refused(16, 1) == EINVAL);
  CHECK(in.write(RDMA_USER_CM_CMD_BIND, command, 0, sizeof command - 1) == EINVAL);
  const std::uint16_t unknown_family = 99;
  std::memcpy(&command.addr, &unknown_family, sizeof unknown_family);
  CHECK(refused(16, 0) == EINVAL);

  CHECK(in.bind(id, good) == 0);
  CHECK(in.bind(id, good) == EINVAL);
  const std::uint32_t ipoib = in.create(RDMA_PS_IPOIB, some_user);
  CHECK(in.bind(ipoib, v4("127.0.0.1")) == EINVAL);
  CHECK(in.bind(ipoib, v4("0.0.0.0")) == 0);
}

TEST_CASE("the older commands for addresses take IPv4 and IPv6", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  rdma_ucm_bind_ip bind{};
  bind.id = id;
  CHECK(in.write(RDMA_USER_CM_CMD_BIND_IP, bind) == EINVAL);  // No family.
  const address wildcard = v4("0.0.0.0", 7000);
  std::memcpy(&bind.addr, &wildcard.raw(), wildcard.bytes());
  CHECK(in.write(RDMA_USER_CM_CMD_BIND_IP, bind) == 0);
  bind.addr.sin6_family = family_ib;  // An AF_IB address is too long for the command.
  CHECK(in.write(RDMA_USER_CM_CMD_BIND_IP, bind) == EINVAL);

  rdma_ucm_resolve_ip resolve{};
  resolve.id = id;
  resolve.timeout_ms = 1;
  CHECK(in.write(RDMA_USER_CM_CMD_RESOLVE_IP, resolve) == EINVAL);  // No destination.
  const address to = v4("127.0.0.1", 7001);
  std::memcpy(&resolve.dst_addr, &to.raw(), to.bytes());
  resolve.src_addr.sin6_family = 99;
  CHECK(in.write(RDMA_USER_CM_CMD_RESOLVE_IP, resolve) == EINVAL);
  resolve.src_addr.sin6_family = 0;
  CHECK(in.write(RDMA_USER_CM_CMD_RESOLVE_IP, resolve) == 0);
  both.take(in, event_kind::address_resolved, some_user);

  rdma_ucm_query_route_resp answer{};
  const rdma_ucm_query query{reinterpret_cast<std::uintptr_t>(&answer), id, 0};
  REQUIRE(in.write(RDMA_USER_CM_CMD_QUERY_ROUTE, query, sizeof answer, 12) == 0);
  CHECK(answer.node_guid == limits().node_guid);
  CHECK(answer.num_paths == 0);
  CHECK(answer.ib_route[0].pkey == 0xffff);
  CHECK(address{&answer.src_addr, 28}.port() == 7000);
  CHECK(address{&answer.dst_addr, 28}.port() == 7001);
  CHECK(address{&answer.src_addr, 28}.is_loopback());
}

TEST_CASE("a resolved identifier has a source that soft0 has, and then a route", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  CHECK(in.resolve_route(id) == EINVAL);
  REQUIRE(in.resolve(id, v4("127.0.0.1", 7001)) == 0);
  const seen_event resolved = both.take(in, event_kind::address_resolved, some_user);
  CHECK(resolved.status() == 0);
  CHECK(resolved.raw.id == id);
  CHECK(in.resolve(id, v4("127.0.0.1", 7001)) == EINVAL);  // Once is enough.
  auto answer = in.query(id);
  CHECK(address{&answer.src_addr, 128}.is_loopback());
  CHECK(port_of(answer.src_addr) != 0);
  CHECK(port_of(answer.dst_addr) == 7001);
  CHECK(in.resolve_route(id, 0) == EINVAL);
  REQUIRE(in.resolve_route(id) == 0);
  CHECK(in.resolve_route(id) == EINVAL);
  both.take(in, event_kind::route_resolved, some_user);

  const ibv_gid loopback = gid_at(gid_count() - 1);
  const auto gids = in.query(id, RDMA_USER_CM_QUERY_GID);
  sockaddr_ib as_ib{};
  std::memcpy(&as_ib, &gids.dst_addr, sizeof as_ib);
  CHECK(std::memcmp(as_ib.address, loopback.raw, sizeof loopback.raw) == 0);
  CHECK(as_ib.service == htobe64(tcp_service + 7001));

  rdma_ucm_query_route_resp route{};
  const rdma_ucm_query query{reinterpret_cast<std::uintptr_t>(&route), id, 0};
  REQUIRE(in.write(RDMA_USER_CM_CMD_QUERY_ROUTE, query, sizeof route) == 0);
  CHECK(route.num_paths == 1);
  CHECK(route.ib_route[0].mtu == IBV_MTU_4096);
  CHECK(route.ib_route[0].packet_life_time == packet_life_time);
  CHECK(std::memcmp(route.ib_route[0].sgid, loopback.raw, sizeof loopback.raw) == 0);
}

TEST_CASE("the wildcard as a destination means this host", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  REQUIRE(in.resolve(id, v4("0.0.0.0", 7001)) == 0);
  both.take(in, event_kind::address_resolved, some_user);
  const auto four = in.query(id);
  CHECK(address{&four.src_addr, 128}.is_loopback());
  const std::uint32_t six = in.create(RDMA_PS_TCP, some_user);
  REQUIRE(in.resolve(six, v6("::", 7001)) == 0);
  both.take(in, event_kind::address_resolved, some_user);
  const auto answer = in.query(six);
  CHECK(answer.src_size == sizeof(sockaddr_in6));
  CHECK(address{&answer.src_addr, 128}.is_loopback());
}

TEST_CASE("what cannot be resolved is an error or an event, as the kernel decides", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  // The kernel's routes: none leads to 255.255.255.255 without permission.
  CHECK(in.resolve(id, v4("255.255.255.255", 1)) != 0);
  CHECK(in.resolve(id, v6("::1", 1)) == EINVAL);  // The identifier is bound to IPv4 now.
  CHECK(in.resolve(id, v4("127.0.0.1", 1)) == 0);
  both.take(in, event_kind::address_resolved, some_user);

  const std::uint32_t ipoib = in.create(RDMA_PS_IPOIB, some_user);
  REQUIRE(in.resolve(ipoib, v4("127.0.0.1", 1)) == 0);
  CHECK(both.take(in, event_kind::address_error, some_user).status() == -EINVAL);

  rdma_ucm_resolve_addr command{};
  command.id = in.create(RDMA_PS_TCP, some_user);
  const address to = v4("127.0.0.1", 1);
  std::memcpy(&command.dst_addr, &to.raw(), to.bytes());
  const auto refused = [&](std::uint16_t from_size, std::uint16_t to_size, std::uint32_t reserved) {
    command.src_size = from_size;
    command.dst_size = to_size;
    command.reserved = reserved;
    return in.write(RDMA_USER_CM_CMD_RESOLVE_ADDR, command);
  };
  CHECK(refused(0, 0, 0) == EINVAL);
  CHECK(refused(0, 28, 0) == EINVAL);
  CHECK(refused(16, 16, 0) == EINVAL);  // A source without a family.
  CHECK(refused(0, 16, 1) == EINVAL);
  CHECK(refused(0, 16, 0) == 0);
}

TEST_CASE("answers to queries are as long as the program's header knows", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  REQUIRE(in.resolve(id, v4("127.0.0.1", 7001)) == 0);
  REQUIRE(in.resolve_route(id) == 0);
  alignas(8) std::uint8_t answer[1024];
  const auto ask = [&](std::uint32_t number, std::uint32_t option, std::size_t room) {
    std::memset(answer, 0xee, sizeof answer);
    const rdma_ucm_query query{reinterpret_cast<std::uintptr_t>(answer), id, option};
    return in.write(number, query, room);
  };
  constexpr std::size_t short_address = offsetof(rdma_ucm_query_addr_resp, ibdev_index);
  for (const auto option : {RDMA_USER_CM_QUERY_ADDR, RDMA_USER_CM_QUERY_GID}) {
    CHECK(ask(RDMA_USER_CM_CMD_QUERY, option, short_address - 1) == ENOSPC);
    REQUIRE(ask(RDMA_USER_CM_CMD_QUERY, option, short_address) == 0);
    CHECK(answer[short_address] == 0xee);
    REQUIRE(ask(RDMA_USER_CM_CMD_QUERY, option, sizeof answer) == 0);
    CHECK(answer[short_address] == 0xff);  // No device index: soft0 is found by its GUID.
    CHECK(answer[sizeof(rdma_ucm_query_addr_resp)] == 0xee);
  }
  constexpr std::size_t short_route = offsetof(rdma_ucm_query_route_resp, ibdev_index);
  CHECK(ask(RDMA_USER_CM_CMD_QUERY_ROUTE, 0, short_route - 1) == ENOSPC);
  REQUIRE(ask(RDMA_USER_CM_CMD_QUERY_ROUTE, 0, short_route) == 0);
  CHECK(answer[short_route] == 0xee);

  CHECK(ask(RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_PATH, 7) == ENOSPC);
  REQUIRE(ask(RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_PATH, 8) == 0);
  CHECK(answer[0] == 1);  // There is a path, but no room for it.
  CHECK(answer[8] == 0xee);
  REQUIRE(ask(RDMA_USER_CM_CMD_QUERY, RDMA_USER_CM_QUERY_PATH, 8 + sizeof(ib_path_rec_data) + 1) ==
          0);
  ib_path_rec_data record{};
  std::memcpy(&record, answer + 8, sizeof record);
  CHECK(record.flags == usable_path);
  CHECK(unpacked(record).mtu == IBV_MTU_4096);
  CHECK(ask(RDMA_USER_CM_CMD_QUERY, query_ib_service, service_records_head - 1) == ENOSPC);
  CHECK(ask(RDMA_USER_CM_CMD_QUERY, query_ib_service, sizeof answer) == ENODATA);
  CHECK(ask(RDMA_USER_CM_CMD_QUERY, query_ib_service + 1, sizeof answer) == ENOSYS);
}

TEST_CASE("a RoCE port has no service records", "[cm]") {
  two_processes both;
  file& in = both.client;
  constexpr std::uint32_t resolve_ib_service = 23;
  const auto ask = [&](std::uint32_t id, std::size_t bytes = sizeof(resolve_ib_service_command)) {
    resolve_ib_service_command command{};
    command.id = id;
    return in.write(resolve_ib_service, command, 0, bytes);
  };
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  CHECK(ask(id + 1) == ENOENT);
  CHECK(ask(id) == EINVAL);
  REQUIRE(in.bind(id, v4("0.0.0.0")) == 0);
  CHECK(ask(id) == EINVAL);  // No device.
  REQUIRE(in.resolve(id, v4("127.0.0.1", 7001)) == 0);
  CHECK(ask(id) == EINVAL);  // No longer just bound.
  for (const address& own : addresses_beside_loopback()) {
    const std::uint32_t specific = in.create(RDMA_PS_TCP, some_user);
    REQUIRE(in.bind(specific, own) == 0);
    CHECK(ask(specific) == EOPNOTSUPP);
    CHECK(ask(specific, sizeof(resolve_ib_service_command) - 1) == EINVAL);
  }
}

TEST_CASE("a program may bring its own path record", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  path own;
  own.mtu = IBV_MTU_1024;
  own.life_time = 20;
  own.flow_label = 0x12345;
  ib_path_rec_data records[2]{{}, packed(own)};
  rdma_ucm_set_option command{};
  command.optval = reinterpret_cast<std::uintptr_t>(records);
  command.id = id;
  command.level = RDMA_OPTION_IB;
  command.optname = RDMA_OPTION_IB_PATH;
  const auto set = [&](std::size_t bytes) {
    command.optlen = static_cast<std::uint32_t>(bytes);
    return in.write(RDMA_USER_CM_CMD_SET_OPTION, command);
  };
  CHECK(set(sizeof records) == EINVAL);  // No address was resolved.
  REQUIRE(in.resolve(id, v4("127.0.0.1", 7001)) == 0);
  both.take(in, event_kind::address_resolved, some_user);
  CHECK(set(0) == EINVAL);
  CHECK(set(sizeof records - 1) == EINVAL);
  CHECK(set(sizeof records[0]) == EINVAL);  // The first record is not usable.
  REQUIRE(set(sizeof records) == 0);
  both.take(in, event_kind::route_resolved, some_user);
  rdma_ucm_query_route_resp route{};
  const rdma_ucm_query query{reinterpret_cast<std::uintptr_t>(&route), id, 0};
  REQUIRE(in.write(RDMA_USER_CM_CMD_QUERY_ROUTE, query, sizeof route) == 0);
  CHECK(route.ib_route[0].mtu == IBV_MTU_1024);
  CHECK(route.ib_route[0].packet_life_time == 20);
  CHECK(route.ib_route[0].flow_label == htobe32(0x12345));
}
