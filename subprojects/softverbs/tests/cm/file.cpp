#include "file.hpp"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <cerrno>

namespace softverbs::cm::test {

file::file(process& of)
    : of{of},
      descriptor{::eventfd(0, EFD_SEMAPHORE | EFD_NONBLOCK)},
      events{unique_fd{::dup(descriptor.get())}} {
  events.has_engine = true;
}

file::~file() { of.rdma_cm->close(events); }

int file::write_raw(std::uint32_t number, const void* command, std::size_t in_bytes,
                    std::size_t out_bytes) {
  return of.rdma_cm->serve(events, number, {command, in_bytes, out_bytes},
                           [](int, channel*&) { return ENOENT; });
}

bool file::readable() const {
  pollfd one{descriptor.get(), POLLIN, 0};
  return ::poll(&one, 1, 0) == 1;
}

std::optional<seen_event> file::read_event(std::size_t out_bytes) {
  seen_event result;
  const rdma_ucm_get_event command{reinterpret_cast<std::uintptr_t>(&result.raw)};
  const command_body body{&command, sizeof command, out_bytes};
  REQUIRE(machine::check_get_event(body) == 0);
  std::uint64_t count = 0;
  if (::read(descriptor.get(), &count, sizeof count) != sizeof count) return std::nullopt;
  int error = 0;
  REQUIRE(of.rdma_cm->get_event(events, body, error));
  REQUIRE(error == 0);
  return result;
}

std::uint32_t file::create(std::uint16_t space, std::uint64_t user, int qp_type) {
  rdma_ucm_create_id_resp answer{};
  rdma_ucm_create_id command{};
  command.uid = user;
  command.response = reinterpret_cast<std::uintptr_t>(&answer);
  command.ps = space;
  command.qp_type = static_cast<std::uint8_t>(qp_type);
  REQUIRE(write(RDMA_USER_CM_CMD_CREATE_ID, command, sizeof answer) == 0);
  return answer.id;
}

std::uint32_t file::destroy(std::uint32_t id) {
  rdma_ucm_destroy_id_resp answer{};
  rdma_ucm_destroy_id command{};
  command.id = id;
  command.response = reinterpret_cast<std::uintptr_t>(&answer);
  REQUIRE(write(RDMA_USER_CM_CMD_DESTROY_ID, command, sizeof answer) == 0);
  return answer.events_reported;
}

int file::bind(std::uint32_t id, const address& at) {
  rdma_ucm_bind command{};
  command.id = id;
  command.addr_size = static_cast<std::uint16_t>(at.bytes());
  std::memcpy(&command.addr, &at.raw(), at.bytes());
  return write(RDMA_USER_CM_CMD_BIND, command);
}

int file::resolve(std::uint32_t id, const address& to, const address& from) {
  rdma_ucm_resolve_addr command{};
  command.id = id;
  command.timeout_ms = 1000;
  command.src_size = static_cast<std::uint16_t>(from.bytes());
  command.dst_size = static_cast<std::uint16_t>(to.bytes());
  std::memcpy(&command.src_addr, &from.raw(), from.bytes());
  std::memcpy(&command.dst_addr, &to.raw(), to.bytes());
  return write(RDMA_USER_CM_CMD_RESOLVE_ADDR, command);
}

int file::resolve_route(std::uint32_t id, std::uint32_t timeout_ms) {
  return write(RDMA_USER_CM_CMD_RESOLVE_ROUTE, rdma_ucm_resolve_route{id, timeout_ms});
}

int file::listen(std::uint32_t id, std::uint32_t backlog) {
  return write(RDMA_USER_CM_CMD_LISTEN, rdma_ucm_listen{id, backlog});
}

int file::connect(std::uint32_t id, const rdma_ucm_conn_param& with) {
  rdma_ucm_connect command{};
  command.conn_param = with;
  command.id = id;
  return write(RDMA_USER_CM_CMD_CONNECT, command);
}

int file::accept(std::uint32_t id, std::uint64_t user, const rdma_ucm_conn_param& with) {
  rdma_ucm_accept command{};
  command.uid = user;
  command.conn_param = with;
  command.id = id;
  return write(RDMA_USER_CM_CMD_ACCEPT, command);
}

int file::reject(std::uint32_t id, const char* data, std::uint8_t reason) {
  rdma_ucm_reject command{};
  command.id = id;
  command.private_data_len = static_cast<std::uint8_t>(std::strlen(data));
  command.reason = reason;
  std::memcpy(command.private_data, data, command.private_data_len);
  return write(RDMA_USER_CM_CMD_REJECT, command);
}

int file::disconnect(std::uint32_t id) {
  return write(RDMA_USER_CM_CMD_DISCONNECT, rdma_ucm_disconnect{id});
}

rdma_ucm_query_addr_resp file::query(std::uint32_t id, std::uint32_t option) {
  rdma_ucm_query_addr_resp answer{};
  const rdma_ucm_query command{reinterpret_cast<std::uintptr_t>(&answer), id, option};
  REQUIRE(write(RDMA_USER_CM_CMD_QUERY, command, sizeof answer) == 0);
  return answer;
}

int file::query_error(std::uint32_t id) {
  rdma_ucm_query_addr_resp answer{};
  const rdma_ucm_query command{reinterpret_cast<std::uintptr_t>(&answer), id,
                               RDMA_USER_CM_QUERY_ADDR};
  return write(RDMA_USER_CM_CMD_QUERY, command, sizeof answer);
}

int file::init_qp_attr(std::uint32_t id, ibv_qp_state state, ib_uverbs_qp_attr& to) {
  const rdma_ucm_init_qp_attr command{reinterpret_cast<std::uintptr_t>(&to), id, state};
  return write(RDMA_USER_CM_CMD_INIT_QP_ATTR, command, sizeof to);
}

address v4(const char* text, std::uint16_t port) {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_port = htons(port);
  REQUIRE(::inet_pton(AF_INET, text, &raw.sin_addr) == 1);
  return address{&raw, sizeof raw};
}

address v6(const char* text, std::uint16_t port) {
  sockaddr_in6 raw{};
  raw.sin6_family = AF_INET6;
  raw.sin6_port = htons(port);
  REQUIRE(::inet_pton(AF_INET6, text, &raw.sin6_addr) == 1);
  return address{&raw, sizeof raw};
}

rdma_ucm_conn_param parameters(std::uint32_t qpn, const char* private_data) {
  rdma_ucm_conn_param result{};
  result.qp_num = qpn;
  result.private_data_len = static_cast<std::uint8_t>(std::strlen(private_data));
  std::memcpy(result.private_data, private_data, result.private_data_len);
  result.responder_resources = 4;
  result.initiator_depth = 2;
  result.retry_count = 7;
  result.rnr_retry_count = 6;
  result.valid = 1;
  return result;
}

}  // namespace softverbs::cm::test
