#include "cm/machine.hpp"
#include "object/context.hpp"

#include <endian.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

// Commands that tell the program about an identifier.

namespace softverbs::cm {

namespace {

/// The device index of soft0, also from ibv_get_device_index(): programs then look for the GUID.
constexpr std::uint32_t no_device_index = ~std::uint32_t{0};

void describe_device(const identifier& one, rdma_ucm_query_addr_resp& answer) noexcept {
  if (!one.has_device) return;
  answer.node_guid = limits().node_guid;
  answer.ibdev_index = no_device_index;
  answer.port_num = only_port;
  answer.pkey = default_pkey;
}

/// Writes as much of the answer as the program's header has; older ones have no device index.
template <class Answer>
int write_shortened(std::uint64_t to, const Answer& answer, std::size_t room) noexcept {
  if (room < offsetof(Answer, ibdev_index)) return ENOSPC;
  return write_answer(to, &answer, std::min(room, sizeof answer));
}

int query_address(const identifier& one, std::uint64_t to, std::size_t room) noexcept {
  rdma_ucm_query_addr_resp answer{};
  answer.src_size = static_cast<std::uint16_t>(one.source.bytes());
  std::memcpy(&answer.src_addr, &one.source.raw(), one.source.bytes());
  answer.dst_size = static_cast<std::uint16_t>(one.destination.bytes());
  std::memcpy(&answer.dst_addr, &one.destination.raw(), one.destination.bytes());
  describe_device(one, answer);
  return write_shortened(to, answer, room);
}

sockaddr_ib as_ib(const identifier& one, const address& from, const ibv_gid& gid,
                  std::uint16_t pkey) noexcept {
  if (from.family() == family_ib) return from.ib();
  sockaddr_ib result{};
  result.family = family_ib;
  result.pkey = pkey;
  if (one.has_device) std::memcpy(result.address, gid.raw, sizeof result.address);
  result.service = htobe64((std::uint64_t{one.space} << 16) + from.port());
  return result;
}

int query_gid(const identifier& one, std::uint64_t to, std::size_t room) noexcept {
  rdma_ucm_query_addr_resp answer{};
  describe_device(one, answer);
  const sockaddr_ib source = as_ib(one, one.source, one.source_gid(), answer.pkey);
  const sockaddr_ib destination = as_ib(one, one.destination, one.destination_gid(), answer.pkey);
  answer.src_size = answer.dst_size = sizeof(sockaddr_ib);
  std::memcpy(&answer.src_addr, &source, sizeof source);
  std::memcpy(&answer.dst_addr, &destination, sizeof destination);
  return write_shortened(to, answer, room);
}

int query_path(const identifier& one, std::uint64_t to, std::size_t room) noexcept {
  struct {
    std::uint32_t paths;
    std::uint32_t reserved;
    ib_path_rec_data path;
  } answer{};
  constexpr std::size_t head = offsetof(decltype(answer), path);
  if (room < head) return ENOSPC;
  std::size_t bytes = head;
  if (one.has_path) {
    answer.paths = 1;
    answer.path = packed(one.route);
    // The kernel, too, writes the record only when there is room for more than the record.
    if (room - head > sizeof answer.path) bytes += sizeof answer.path;
  }
  return write_answer(to, &answer, bytes);
}

}  // namespace

int machine::query_route(channel& in, const command_body& body) {
  if (body.out_bytes < offsetof(rdma_ucm_query_route_resp, ibdev_index)) return ENOSPC;
  rdma_ucm_query command;
  constexpr std::size_t needed = offsetof(rdma_ucm_query, option);
  if (const int error = body.read(command, needed)) return error;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  rdma_ucm_query_route_resp answer{};
  const auto copy = [](sockaddr_in6& to, const address& from) {
    std::memcpy(&to, &from.raw(), std::min(from.bytes(), sizeof to));
  };
  copy(answer.src_addr, one->source);
  copy(answer.dst_addr, one->destination);
  if (one->has_device) {
    answer.node_guid = limits().node_guid;
    answer.ibdev_index = no_device_index;
    answer.port_num = only_port;
    if (one->has_path) {
      answer.num_paths = 1;
      answer.ib_route[0] = route_record(one->route);
    } else {
      const ibv_gid source = one->source_gid();
      const ibv_gid destination = one->destination_gid();
      std::memcpy(answer.ib_route[0].sgid, source.raw, sizeof source.raw);
      std::memcpy(answer.ib_route[0].dgid, destination.raw, sizeof destination.raw);
      answer.ib_route[0].pkey = default_pkey;
    }
  }
  return write_shortened(command.response, answer, body.out_bytes);
}

int machine::query(channel& in, const command_body& body) {
  rdma_ucm_query command;
  if (const int error = body.read(command)) return error;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  switch (command.option) {
    case RDMA_USER_CM_QUERY_ADDR: return query_address(*one, command.response, body.out_bytes);
    case RDMA_USER_CM_QUERY_PATH: return query_path(*one, command.response, body.out_bytes);
    case RDMA_USER_CM_QUERY_GID: return query_gid(*one, command.response, body.out_bytes);
    case query_ib_service:  // See resolve_ib_service(): there are no records.
      return body.out_bytes < service_records_head ? ENOSPC : ENODATA;
    default: return ENOSYS;
  }
}

}  // namespace softverbs::cm
