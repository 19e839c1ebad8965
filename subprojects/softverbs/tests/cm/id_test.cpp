#include "fixture.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>

using namespace softverbs;
using namespace softverbs::cm;
using namespace softverbs::cm::test;

namespace {

constexpr std::uint32_t no_id = 4711;
constexpr std::uint32_t write_event_number = 24;

int write_event(file& of, std::uint32_t id, event_kind kind, int status, std::uint64_t argument) {
  write_event_command command{};
  command.id = id;
  command.event = static_cast<std::uint32_t>(kind);
  command.status = static_cast<std::uint32_t>(status);
  command.argument = argument;
  return of.write(write_event_number, command);
}

int set_option(file& of, std::uint32_t id, std::uint32_t level, std::uint32_t name,
               const void* value, std::uint32_t bytes) {
  rdma_ucm_set_option command{};
  command.optval = reinterpret_cast<std::uintptr_t>(value);
  command.id = id;
  command.level = level;
  command.optname = name;
  command.optlen = bytes;
  return of.write(RDMA_USER_CM_CMD_SET_OPTION, command);
}

/// Moves an identifier to `to`, from the file whose descriptor the command names.
int migrate(file& to, file& from, std::uint32_t id, rdma_ucm_migrate_resp& answer) {
  rdma_ucm_migrate_id command{};
  command.response = reinterpret_cast<std::uintptr_t>(&answer);
  command.id = id;
  command.fd = static_cast<std::uint32_t>(from.descriptor.get());
  const command_body body{&command, sizeof command, sizeof answer};
  return to.of.rdma_cm->serve(to.events, RDMA_USER_CM_CMD_MIGRATE_ID, body,
                              [&](int fd, channel*& found) {
                                if (fd != from.descriptor.get()) return EINVAL;
                                found = &from.events;
                                return 0;
                              });
}

}  // namespace

TEST_CASE("identifiers have the lowest free numbers, of all channels of a process", "[cm]") {
  network all;
  process one{all};
  file first{one};
  file second{one};
  CHECK(first.create(RDMA_PS_TCP, some_user) == 0);
  CHECK(second.create(RDMA_PS_UDP, some_user) == 1);
  CHECK(first.create(RDMA_PS_IPOIB, some_user) == 2);
  CHECK(first.create(RDMA_PS_IB, some_user, IBV_QPT_UC) == 3);
  CHECK(second.destroy(1) == 0);
  CHECK(first.create(RDMA_PS_TCP, some_user) == 1);
}

TEST_CASE("CREATE_ID refuses unknown port spaces and short answers", "[cm]") {
  network all;
  process one{all};
  file in{one};
  rdma_ucm_create_id_resp answer{};
  rdma_ucm_create_id command{};
  command.response = reinterpret_cast<std::uintptr_t>(&answer);
  command.ps = 0x4242;
  CHECK(in.write(RDMA_USER_CM_CMD_CREATE_ID, command, sizeof answer) == EINVAL);
  command.ps = RDMA_PS_TCP;
  CHECK(in.write(RDMA_USER_CM_CMD_CREATE_ID, command, sizeof answer - 1) == ENOSPC);
  CHECK(in.write(RDMA_USER_CM_CMD_CREATE_ID, command, sizeof answer, sizeof command - 1) == EINVAL);
  command.response = 8;  // No memory is mapped there.
  CHECK(in.write(RDMA_USER_CM_CMD_CREATE_ID, command, sizeof answer) == EFAULT);
  CHECK(in.create(RDMA_PS_TCP, some_user) == 0);  // No command above has made an identifier.
}

TEST_CASE("identifiers of nobody are ENOENT, and those of another channel EINVAL", "[cm]") {
  network all;
  process one{all};
  file mine{one};
  file other{one};
  const std::uint32_t id = mine.create(RDMA_PS_TCP, some_user);
  std::uint32_t answer[128]{};
  const auto response = reinterpret_cast<std::uintptr_t>(&answer);
  const auto both = [&](auto command, std::uint32_t number) {
    command.id = no_id;
    CHECK(other.write(number, command, sizeof answer) == ENOENT);
    command.id = id;
    CHECK(other.write(number, command, sizeof answer) == EINVAL);
  };
  both(rdma_ucm_destroy_id{response, 0, 0}, RDMA_USER_CM_CMD_DESTROY_ID);
  both(rdma_ucm_resolve_route{0, 1}, RDMA_USER_CM_CMD_RESOLVE_ROUTE);
  both(rdma_ucm_query{response, 0, RDMA_USER_CM_QUERY_ADDR}, RDMA_USER_CM_CMD_QUERY);
  both(rdma_ucm_query{response, 0, 0}, RDMA_USER_CM_CMD_QUERY_ROUTE);
  both(rdma_ucm_listen{0, 1}, RDMA_USER_CM_CMD_LISTEN);
  both(rdma_ucm_disconnect{0}, RDMA_USER_CM_CMD_DISCONNECT);
  both(rdma_ucm_init_qp_attr{response, 0, 1}, RDMA_USER_CM_CMD_INIT_QP_ATTR);
  both(rdma_ucm_notify{0, IBV_EVENT_COMM_EST}, RDMA_USER_CM_CMD_NOTIFY);
  rdma_ucm_connect connect{};
  connect.conn_param.valid = 1;
  both(connect, RDMA_USER_CM_CMD_CONNECT);
  both(rdma_ucm_accept{}, RDMA_USER_CM_CMD_ACCEPT);
  both(rdma_ucm_reject{}, RDMA_USER_CM_CMD_REJECT);
  both(rdma_ucm_set_option{response, 0, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, 1},
       RDMA_USER_CM_CMD_SET_OPTION);
  CHECK(other.bind(no_id, v4("127.0.0.1")) == ENOENT);
  CHECK(other.bind(id, v4("127.0.0.1")) == EINVAL);
  CHECK(other.resolve(no_id, v4("127.0.0.1")) == ENOENT);
  CHECK(other.resolve(id, v4("127.0.0.1")) == EINVAL);
  CHECK(mine.destroy(id) == 0);
}

TEST_CASE("commands that the kernel does not have are refused as it refuses them", "[cm]") {
  network all;
  process one{all};
  file in{one};
  const std::uint8_t bytes[512]{};
  CHECK(in.write(RDMA_USER_CM_CMD_GET_OPTION, bytes, sizeof bytes) == ENOSYS);
  for (const std::uint32_t number : {write_event_number + 1, ~0u})
    CHECK(in.write(number, bytes, sizeof bytes) == EINVAL);
}

TEST_CASE("options are checked for their size, their value and the state", "[cm]") {
  network all;
  process one{all};
  file in{one};
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  const std::uint8_t byte = 3;
  const int flag = 1;
  const int no_flag = 0;
  const auto set = [&](std::uint32_t name, const void* value, std::uint32_t size) {
    return set_option(in, id, RDMA_OPTION_ID, name, value, size);
  };
  CHECK(set(RDMA_OPTION_ID_TOS, &byte, 1) == 0);
  CHECK(set(RDMA_OPTION_ID_TOS, &flag, 4) == EINVAL);
  CHECK(set(RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1) == 0);
  CHECK(set(RDMA_OPTION_ID_ACK_TIMEOUT, &flag, 4) == EINVAL);
  CHECK(set(RDMA_OPTION_ID_REUSEADDR, &byte, 1) == EINVAL);
  CHECK(set(RDMA_OPTION_ID_AFONLY, &byte, 1) == EINVAL);
  CHECK(set(RDMA_OPTION_ID_REUSEADDR, nullptr, 4) == EFAULT);
  CHECK(set(RDMA_OPTION_ID_REUSEADDR, &flag, (4u << 20) + 1) == EINVAL);
  CHECK(set(99, &flag, 4) == ENOSYS);
  CHECK(set_option(in, id, 7, RDMA_OPTION_ID_TOS, &byte, 1) == ENOSYS);
  CHECK(set_option(in, id, RDMA_OPTION_IB, 9, &byte, 1) == ENOSYS);

  CHECK(set(RDMA_OPTION_ID_REUSEADDR, &flag, 4) == 0);
  CHECK(set(RDMA_OPTION_ID_AFONLY, &flag, 4) == 0);
  REQUIRE(in.bind(id, v4("127.0.0.1")) == 0);
  CHECK(set(RDMA_OPTION_ID_REUSEADDR, &flag, 4) == 0);
  CHECK(set(RDMA_OPTION_ID_REUSEADDR, &no_flag, 4) == EINVAL);
  CHECK(set(RDMA_OPTION_ID_AFONLY, &no_flag, 4) == 0);
  REQUIRE(in.listen(id) == 0);
  CHECK(set(RDMA_OPTION_ID_REUSEADDR, &flag, 4) == EINVAL);
  CHECK(set(RDMA_OPTION_ID_AFONLY, &no_flag, 4) == EINVAL);

  const std::uint32_t datagrams = in.create(RDMA_PS_UDP, some_user);
  CHECK(set_option(in, datagrams, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &byte, 1) == EINVAL);
}

TEST_CASE("events are counted by the descriptor, and destroyed with their identifier", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t first = in.create(RDMA_PS_TCP, 1);
  const std::uint32_t second = in.create(RDMA_PS_TCP, 2);
  CHECK_FALSE(in.readable());
  for (const std::uint32_t id : {first, second}) {
    REQUIRE(in.resolve(id, v4("127.0.0.1", 5)) == 0);
    REQUIRE(in.resolve_route(id) == 0);
  }
  CHECK(in.readable());
  both.take(in, event_kind::address_resolved, 1);
  CHECK(in.destroy(first) == 1);  // One event was read; the other event goes.
  both.take(in, event_kind::address_resolved, 2);
  both.take(in, event_kind::route_resolved, 2);
  CHECK_FALSE(in.readable());
  CHECK(in.destroy(second) == 2);
}

TEST_CASE("an event that cannot be written stays", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  REQUIRE(in.resolve(id, v4("127.0.0.1", 5)) == 0);
  const rdma_ucm_get_event command{8};  // No memory is mapped there.
  std::uint64_t count = 0;
  REQUIRE(::read(in.descriptor.get(), &count, sizeof count) == sizeof count);
  int error = 0;
  CHECK(both.client_process.rdma_cm->get_event(
      in.events, {&command, sizeof command, sizeof(rdma_ucm_event_resp)}, error));
  CHECK(error == EFAULT);
  both.take(in, event_kind::address_resolved, some_user);
}

TEST_CASE("an event is shortened for programs that know less of it", "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  constexpr std::size_t without_ece = offsetof(rdma_ucm_event_resp, reserved);
  const rdma_ucm_get_event command{8};
  CHECK(machine::check_get_event({&command, sizeof command, without_ece}) == 0);
  CHECK(machine::check_get_event({&command, sizeof command, without_ece - 1}) == ENOSPC);
  CHECK(machine::check_get_event({&command, sizeof command - 1, without_ece}) == EINVAL);
  REQUIRE(in.resolve(id, v4("127.0.0.1", 5)) == 0);
  const auto found = in.read_event(without_ece);
  REQUIRE(found);
  CHECK(found->kind() == event_kind::address_resolved);
}

TEST_CASE("a program writes events, which come in order, count, and end with their identifier",
          "[cm]") {
  two_processes both;
  file& in = both.client;
  const std::uint32_t id = in.create(RDMA_PS_TCP, some_user);
  const std::uint32_t other = in.create(RDMA_PS_TCP, 1);
  constexpr std::uint64_t argument = 0x0123'4567'89ab'cdef;
  REQUIRE(write_event(in, id, event_kind::user, -7, argument) == 0);
  REQUIRE(in.resolve(id, v4("127.0.0.1", 5)) == 0);
  REQUIRE(write_event(in, id, event_kind::internal, 0, 16) == 0);
  REQUIRE(write_event(in, other, event_kind::user, 0, 2) == 0);
  const seen_event first = both.take(in, event_kind::user, some_user);
  CHECK(first.raw.id == id);
  CHECK(first.status() == -7);
  std::uint64_t seen = 0;
  std::memcpy(&seen, &first.raw.param, sizeof seen);
  CHECK(seen == argument);
  both.take(in, event_kind::address_resolved, some_user);
  CHECK(in.destroy(id) == 2);  // The internal event goes unread.
  both.take(in, event_kind::user, 1);
  CHECK_FALSE(in.readable());
}

TEST_CASE("a program writes no events of the kernel, nor to identifiers of others", "[cm]") {
  network all;
  process one{all};
  file mine{one};
  file other{one};
  const std::uint32_t id = mine.create(RDMA_PS_TCP, some_user);
  for (const auto kind : {event_kind::established, event_kind::timewait_exit, event_kind{17},
                          event_kind{20}, event_kind{~0u}}) {
    CHECK(write_event(mine, id, kind, 0, 0) == EINVAL);
    CHECK(write_event(mine, no_id, kind, 0, 0) == EINVAL);
  }
  CHECK(write_event(mine, no_id, event_kind::user, 0, 0) == ENOENT);
  CHECK(write_event(other, id, event_kind::user, 0, 0) == EINVAL);
  write_event_command command{};
  command.id = id;
  command.event = static_cast<std::uint32_t>(event_kind::user);
  CHECK(mine.write(write_event_number, command, 0, sizeof command - 1) == EINVAL);
  CHECK_FALSE(mine.readable());
  CHECK_FALSE(other.readable());
}

TEST_CASE("a migrated identifier takes its events along, and later ones follow", "[cm]") {
  two_processes both;
  file& old = both.client;
  file fresh{both.client_process};
  const std::uint32_t stays = old.create(RDMA_PS_TCP, 1);
  const std::uint32_t moves = old.create(RDMA_PS_TCP, 2);
  REQUIRE(old.resolve(moves, v4("127.0.0.1", 5)) == 0);
  both.take(old, event_kind::address_resolved, 2);
  REQUIRE(old.resolve(stays, v4("127.0.0.1", 5)) == 0);
  REQUIRE(old.resolve_route(moves) == 0);

  rdma_ucm_migrate_resp answer{};
  REQUIRE(migrate(fresh, old, moves, answer) == 0);
  CHECK(answer.events_reported == 1);
  both.take(old, event_kind::address_resolved, 1);
  CHECK_FALSE(old.readable());
  both.take(fresh, event_kind::route_resolved, 2);
  CHECK_FALSE(fresh.readable());
  CHECK(old.query_error(moves) == EINVAL);
  CHECK(fresh.query_error(moves) == 0);

  CHECK(migrate(old, old, moves, answer) == EINVAL);
  CHECK(migrate(fresh, old, no_id, answer) == ENOENT);
  CHECK(migrate(fresh, fresh, moves, answer) == 0);
  CHECK(answer.events_reported == 2);
  CHECK(fresh.destroy(moves) == 2);
}

TEST_CASE("a connect request that waits moves with its listener", "[cm]") {
  two_processes both;
  file fresh{both.server_process};
  both.listen();
  both.client_id = both.resolved();
  REQUIRE(both.client.connect(both.client_id, parameters(both.client_qpn)) == 0);
  both.run();
  rdma_ucm_migrate_resp answer{};
  REQUIRE(migrate(fresh, both.server, both.listener, answer) == 0);
  CHECK_FALSE(both.server.readable());
  const seen_event found = both.take(fresh, event_kind::connect_request, both.listener_user);
  CHECK(fresh.accept(found.raw.id, both.server_user, parameters(both.server_qpn)) == 0);
  both.run();
  both.take(both.client, event_kind::connect_response, both.client_user);
}

TEST_CASE("a connection that was accepted before its request was read moves with its listener",
          "[cm]") {
  two_processes both;
  file fresh{both.server_process};
  both.listen();
  both.client_id = both.resolved();
  REQUIRE(both.client.connect(both.client_id, parameters(both.client_qpn)) == 0);
  both.run();
  both.server_id = both.listener + 1;  // Numbers are given out in order.
  both.reply();
  REQUIRE(both.client.accept(both.client_id, 0, rdma_ucm_conn_param{}) == 0);
  both.run();
  rdma_ucm_migrate_resp answer{};
  REQUIRE(migrate(fresh, both.server, both.listener, answer) == 0);
  CHECK_FALSE(both.server.readable());
  const seen_event found = both.take(fresh, event_kind::connect_request, both.listener_user);
  CHECK(found.raw.id == both.server_id);
  both.take(fresh, event_kind::established, both.server_user);
  CHECK_FALSE(fresh.readable());
}

TEST_CASE("an identifier needs the engine from its first address on, and takes it along", "[cm]") {
  two_processes both;
  file idle{both.client_process};
  idle.events.has_engine = false;
  const std::uint32_t id = idle.create(RDMA_PS_TCP, some_user);
  CHECK(idle.bind(id, v4("127.0.0.1")) == machine::engine_needed);
  CHECK(idle.resolve(id, v4("127.0.0.1", 5)) == machine::engine_needed);
  const std::uint32_t busy = both.client.create(RDMA_PS_TCP, some_user);
  rdma_ucm_migrate_resp answer{};
  CHECK(migrate(idle, both.client, busy, answer) == machine::engine_needed);
  idle.events.has_engine = true;
  CHECK(idle.bind(id, v4("127.0.0.1")) == 0);
  CHECK(migrate(idle, both.client, busy, answer) == 0);
}
