#include "fuzz/rdmacm_program.hpp"

#include "cm/path_record.hpp"
#include "node/gid_table.hpp"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>

// All commands of the ABI, with arguments from the fuzzer's bytes.

namespace softverbs::fuzz {

using namespace softverbs::cm;

namespace {

constexpr std::uint16_t first_port = 7471;
constexpr unsigned commands_count = 25;
constexpr unsigned resolve_ib_service_number = 23;
constexpr auto untouched = [] {  // The memory for answers, before a command.
  std::array<std::uint8_t, program::answer_bytes> result{};
  result.fill(0xa5);
  return result;
}();

address ip4(const in_addr& host, std::uint16_t port) noexcept {
  sockaddr_in raw{};
  raw.sin_family = AF_INET;
  raw.sin_port = htons(port);
  raw.sin_addr = host;
  return address{&raw, sizeof raw};
}

address with_port(address of, std::uint16_t port) noexcept {
  of.set_port(port);
  return of;
}

address some_address(script& in) noexcept {
  const std::uint8_t what = in.byte();
  const unsigned n = what / 16;
  const auto port = static_cast<std::uint16_t>(n < 8 ? first_port + n % 4 : n == 8 ? 80 : 0);
  switch (what % 16) {
    case 0: return with_port(address::wildcard(AF_INET), port);
    case 1: return with_port(address::wildcard(AF_INET6), port);
    case 2: return with_port(address::loopback(AF_INET6), port);
    case 3: return ip4({htonl(first_ip4_address())}, port);
    case 4: {
      address service = address::wildcard(family_ib);
      service.ib().service = in.take<std::uint64_t>();
      service.ib().service_mask = in.take<std::uint64_t>();
      return service;
    }
    case 5: {  // Seldom, since looking for an address of this host is dear.
      if (n < 12) return ip4({htonl(0x7f000000u + what)}, port);
      if (n < 14) return ip4({in.take<std::uint32_t>()}, port);
      sockaddr_storage raw{};
      for (std::size_t n_byte = 0; n_byte < sizeof(sockaddr_in6); ++n_byte)
        reinterpret_cast<std::uint8_t*>(&raw)[n_byte] = in.byte();
      return address{&raw, sizeof raw};
    }
    default: return with_port(address::loopback(AF_INET), port);
  }
}

/// An address of a group, most often.
address some_group(script& in) noexcept {
  const std::uint8_t what = in.byte();
  if (what % 8 == 0) return some_address(in);
  return ip4({htonl(0xef000000u | what)}, 0);
}

rdma_ucm_conn_param some_parameters(script& in) noexcept {
  rdma_ucm_conn_param result{};
  const std::uint8_t what = in.byte();
  result.qp_num = what % 16 == 1 ? in.take<std::uint32_t>() : 0x100u + what;
  result.valid = what % 8 != 0 ? 1 : 0;
  result.private_data_len = what % 64;
  std::memset(result.private_data, what, result.private_data_len);
  result.responder_resources = what % 5;
  result.initiator_depth = what % 3;
  result.retry_count = result.rnr_retry_count = 7;
  return result;
}

/// Changes a few bytes; most often none.
template <class Command>
void lie(script& in, Command& body) noexcept {
  constexpr unsigned lies_max = 3;
  const unsigned lies = in.byte() % 32u;
  if (lies > lies_max) return;
  auto* const bytes = reinterpret_cast<std::uint8_t*>(&body);
  for (unsigned n = 0; n < lies; ++n) bytes[in.take<std::uint16_t>() % sizeof body] ^= in.byte();
}

}  // namespace

int program::serve_bytes(std::size_t file, unsigned number, const void* body, std::size_t in_bytes,
                         std::size_t out_bytes) noexcept {
  channel& to = files_[file].events;
  const auto find = [&](int fd, channel*& found) {
    if (fd < 0 || fd >= static_cast<int>(files)) return ENOENT;
    found = &files_[static_cast<std::size_t>(fd)].events;
    return 0;
  };
  answer_ = untouched;
  const command_body all{body, in_bytes, out_bytes};
  int error = process_.rdma_cm->serve(to, number, all, find);
  if (error == machine::engine_needed) {
    must(!to.has_engine, "the engine is needed twice");
    to.has_engine = true;
    error = process_.rdma_cm->serve(to, number, all, find);
  }
  must(error >= 0, "a command asks for the engine that it has");
  // MIGRATE_ID does not ask how much room there is; the kernel does not, either.
  const std::size_t least =
      number == RDMA_USER_CM_CMD_MIGRATE_ID ? sizeof(rdma_ucm_migrate_resp) : 0;
  const std::size_t room = std::clamp(out_bytes, least, sizeof answer_);
  must(std::memcmp(answer_.data() + room, untouched.data(), sizeof answer_ - room) == 0,
       "an answer is longer than its room");
  return error;
}

template <class Command>
int program::serve(script& in, std::size_t file, unsigned number, Command& body,
                   std::size_t out_bytes) noexcept {
  const std::uint8_t sizes = in.byte();
  const bool is_short = sizes == 1;
  const bool is_long = sizes == 2;
  if constexpr (requires { body.response; })
    body.response = sizes == 3 ? 0 : number_of(answer_.data());
  return serve_bytes(file, number, &body, is_short ? in.byte() % sizeof body : sizeof body,
                     is_long ? in.take<std::uint16_t>() % sizeof answer_ : out_bytes);
}

void program::command(script& in) noexcept {
  const unsigned number = in.byte() % (commands_count + 1);
  const std::uint32_t id = some_id(in);
  do_command(in, number, file_of(id, in), id);
}

void program::do_command(script& in, unsigned number, std::size_t file, std::uint32_t id) noexcept {
  switch (number) {
    case RDMA_USER_CM_CMD_CREATE_ID: {
      constexpr std::uint16_t spaces[] = {RDMA_PS_TCP, RDMA_PS_UDP, RDMA_PS_IB, RDMA_PS_IPOIB};
      create(in, file, spaces[in.byte() % 4]);
      return;
    }
    case RDMA_USER_CM_CMD_DESTROY_ID: return destroy(in, file, id);
    case RDMA_USER_CM_CMD_BIND: return bind(in, file, id);
    case RDMA_USER_CM_CMD_RESOLVE_ADDR: return resolve(in, file, id);
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE: return resolve_route(in, file, id);
    case RDMA_USER_CM_CMD_CONNECT: return connect(in, file, id);
    case RDMA_USER_CM_CMD_LISTEN: return set_listening(in, file, id);
    case RDMA_USER_CM_CMD_ACCEPT: return accept(in, file, id);
    case RDMA_USER_CM_CMD_REJECT: return reject(in, file, id);
    case RDMA_USER_CM_CMD_INIT_QP_ATTR: return init_qp_attr(in, file, id);
    case RDMA_USER_CM_CMD_SET_OPTION: return set_option(in, file, id);
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST: return join(in, file, id, true);
    case RDMA_USER_CM_CMD_JOIN_MCAST: return join(in, file, id, false);
    case RDMA_USER_CM_CMD_LEAVE_MCAST: return leave(in, file, id);
    case RDMA_USER_CM_CMD_MIGRATE_ID: return migrate(in, file, id);
    case write_event_number: return write_event(in, file, id);
    case RDMA_USER_CM_CMD_BIND_IP: {
      rdma_ucm_bind_ip body{};
      const address where = some_address(in);
      std::memcpy(&body.addr, &where.raw(), std::min(where.bytes(), sizeof body.addr));
      body.id = id;
      lie(in, body);
      serve(in, file, number, body);
      return;
    }
    case RDMA_USER_CM_CMD_RESOLVE_IP: {
      rdma_ucm_resolve_ip body{};
      const address to = some_address(in);
      std::memcpy(&body.dst_addr, &to.raw(), std::min(to.bytes(), sizeof body.dst_addr));
      body.id = id;
      lie(in, body);
      serve(in, file, number, body);
      return;
    }
    case RDMA_USER_CM_CMD_DISCONNECT: {
      rdma_ucm_disconnect body{id};
      serve(in, file, number, body);
      return;
    }
    case RDMA_USER_CM_CMD_NOTIFY: {
      rdma_ucm_notify body{id, in.byte() % 4 == 0 ? in.byte() : unsigned{IBV_EVENT_COMM_EST}};
      serve(in, file, number, body);
      return;
    }
    case RDMA_USER_CM_CMD_QUERY:
    case RDMA_USER_CM_CMD_QUERY_ROUTE: {
      rdma_ucm_query body{0, id, in.byte() % 5u};
      serve(in, file, number, body, sizeof(rdma_ucm_query_route_resp));
      return;
    }
    case resolve_ib_service_number: {
      resolve_ib_service_command body{};
      body.id = id;
      serve(in, file, number, body);
      return;
    }
    default: {  // Numbers that are no commands.
      must(serve_bytes(file, number, answer_.data(), in.byte(), 0) != 0, "no command is served");
      return;
    }
  }
}

void program::listen(script& in) noexcept {
  const std::size_t file = in.byte() % files;
  const std::uint8_t what = in.byte();
  const std::uint32_t id = create(in, file, what % 4 == 0 ? RDMA_PS_UDP : RDMA_PS_TCP);
  bind(in, file, id);
  set_listening(in, file, id);
}

void program::dial(script& in) noexcept {
  const std::size_t file = in.byte() % files;
  const std::uint8_t what = in.byte();
  const std::uint32_t id = create(in, file, what % 4 == 0 ? RDMA_PS_UDP : RDMA_PS_TCP);
  resolve(in, file, id);
  resolve_route(in, file, id);
  connect(in, file, id);
}

void program::respond(script& in) noexcept {
  const std::uint32_t id = some_id(in);
  const std::size_t file = file_of(id, in);
  const std::uint8_t what = in.byte();
  if (what % 8 == 1) return do_command(in, RDMA_USER_CM_CMD_NOTIFY, file, id);
  if (what % 4 != 0) return accept(in, file, id);
  do_command(in, RDMA_USER_CM_CMD_DISCONNECT, file, id);
}

std::uint32_t program::create(script& in, std::size_t file, std::uint16_t space) noexcept {
  rdma_ucm_create_id body{};
  body.uid = new_uid(in, history::role::created);
  body.ps = space;
  body.qp_type = space == RDMA_PS_IB ? in.byte() : 0;
  const std::uint8_t lies = in.byte();
  if (lies < 4) body.ps = in.take<std::uint16_t>();
  const int error =
      serve(in, file, RDMA_USER_CM_CMD_CREATE_ID, body, sizeof(rdma_ucm_create_id_resp));
  if (error != 0) return 0;
  const auto made = answer<rdma_ucm_create_id_resp>().id;
  must(!at(made).is_known, "two identifiers have one number");
  know(made, {true, true, body.uid, 0, file});
  const bool is_datagram = body.ps == RDMA_PS_UDP || body.ps == RDMA_PS_IPOIB ||
                           (body.ps == RDMA_PS_IB && body.qp_type == IBV_QPT_UD);
  if (body.uid != 0) told_[body.uid].is_datagram = is_datagram;
  return made;
}

void program::destroy(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_destroy_id body{};
  body.id = id;
  const known before = at(id);
  const int error =
      serve(in, file, RDMA_USER_CM_CMD_DESTROY_ID, body, sizeof(rdma_ucm_destroy_id_resp));
  if (error != 0 && error != EFAULT) {
    must(!before.is_created || before.in != file || error != ENOENT, "an identifier is lost");
    return;
  }
  if (error == 0 && before.is_created)
    must(answer<rdma_ucm_destroy_id_resp>().events_reported == before.reported,
         "another number of events was reported");
  forget(id);
}

void program::bind(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_bind body{};
  const address where = some_address(in);
  body.id = id;
  body.addr_size = static_cast<std::uint16_t>(where.bytes());
  std::memcpy(&body.addr, &where.raw(), where.bytes());
  lie(in, body);
  serve(in, file, RDMA_USER_CM_CMD_BIND, body);
}

void program::resolve(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_resolve_addr body{};
  const std::uint8_t what = in.byte();
  const address to = some_address(in);
  body.id = id;
  body.timeout_ms = 1000;
  body.dst_size = static_cast<std::uint16_t>(to.bytes());
  std::memcpy(&body.dst_addr, &to.raw(), to.bytes());
  if (what % 8 == 0) {
    const address from = some_address(in);
    body.src_size = static_cast<std::uint16_t>(from.bytes());
    std::memcpy(&body.src_addr, &from.raw(), from.bytes());
  }
  lie(in, body);
  serve(in, file, RDMA_USER_CM_CMD_RESOLVE_ADDR, body);
}

void program::resolve_route(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_resolve_route body{id, 1000};
  serve(in, file, RDMA_USER_CM_CMD_RESOLVE_ROUTE, body);
}

void program::connect(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_connect body{};
  body.conn_param = some_parameters(in);
  body.id = id;
  lie(in, body);
  const int error = serve(in, file, RDMA_USER_CM_CMD_CONNECT, body);
  if (error == 0) told_[at(body.id).uid].has_asked = true;
}

void program::set_listening(script& in, std::size_t file, std::uint32_t id) noexcept {
  const std::uint8_t what = in.byte();
  rdma_ucm_listen body{id, what % 4 == 0 ? in.take<std::uint32_t>() : what / 4u % 4u};
  const int error = serve(in, file, RDMA_USER_CM_CMD_LISTEN, body);
  if (error == 0) told_[at(id).uid].listens = true;
}

void program::accept(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_accept body{};
  body.conn_param = some_parameters(in);
  body.id = id;
  lie(in, body);
  const std::uint64_t uid = new_uid(in, history::role::accepted);
  body.uid = uid;
  const int error = serve(in, file, RDMA_USER_CM_CMD_ACCEPT, body);
  if (error != 0 || body.conn_param.valid == 0) return;
  must(!at(body.id).is_created, "a reply to nobody's request is sent");
  at(body.id).uid = uid;
}

void program::reject(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_reject body{};
  const std::uint8_t what = in.byte();
  body.id = id;
  body.private_data_len = what % 16 == 0 ? in.byte() : what;
  body.reason = what % 8 == 0 ? in.byte() : 0;
  serve(in, file, RDMA_USER_CM_CMD_REJECT, body);
}

void program::init_qp_attr(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_init_qp_attr body{0, id, in.byte() % 8u};
  const int error = serve(in, file, RDMA_USER_CM_CMD_INIT_QP_ATTR, body, sizeof(ib_uverbs_qp_attr));
  if (error != 0) return;
  const auto all = answer<ib_uverbs_qp_attr>();
  must(all.qp_state == body.qp_state, "attributes of another state");
  must((all.qp_attr_mask & IBV_QP_STATE) != 0, "attributes without a state");
  must(all.dest_qp_num <= number_max && all.rq_psn <= number_max && all.sq_psn <= number_max,
       "an attribute has more than 24 bits");
  must(all.retry_cnt <= retries_max && all.rnr_retry <= retries_max,
       "an attribute's retry count has 3 bits");
}

void program::set_option(script& in, std::size_t file, std::uint32_t id) noexcept {
  const std::uint8_t what = in.byte();
  std::array<ib_path_rec_data, 4> records{};  // A length of one byte stays within them.
  rdma_ucm_set_option body{number_of(records.data()), id, RDMA_OPTION_ID, what % 8u, 4};
  if (what % 2 == 0) {
    for (std::size_t n = 0; n < 2; ++n)
      records[n].flags = in.byte() % 2 == 0 ? usable_path : in.byte();
    for (std::size_t n = 0; n < sizeof records[0].path_rec; ++n)
      reinterpret_cast<std::uint8_t*>(records[0].path_rec)[n] = in.byte();
    body.level = RDMA_OPTION_IB;
    body.optname = RDMA_OPTION_IB_PATH;
    body.optlen = what % 16 == 0 ? in.byte() : sizeof records[0] * (what / 4u % 3);
  } else {
    *reinterpret_cast<std::uint8_t*>(&records[0]) = in.byte();
    if (what % 3 == 0) body.optlen = 1;
  }
  serve(in, file, RDMA_USER_CM_CMD_SET_OPTION, body);
}

void program::join(script& in, std::size_t file, std::uint32_t id, bool by_ip) noexcept {
  const std::uint64_t uid = new_uid(in, history::role::group);
  const address to = some_group(in);
  int error = 0;
  if (by_ip) {
    rdma_ucm_join_ip_mcast body{};
    body.uid = uid;
    body.id = id;
    std::memcpy(&body.addr, &to.raw(), std::min(to.bytes(), sizeof body.addr));
    error = serve(in, file, RDMA_USER_CM_CMD_JOIN_IP_MCAST, body, sizeof(rdma_ucm_create_id_resp));
  } else {
    rdma_ucm_join_mcast body{};
    body.uid = uid;
    body.id = id;
    body.addr_size = static_cast<std::uint16_t>(to.bytes());
    body.join_flags = in.byte() % 4;
    std::memcpy(&body.addr, &to.raw(), to.bytes());
    error = serve(in, file, RDMA_USER_CM_CMD_JOIN_MCAST, body, sizeof(rdma_ucm_create_id_resp));
  }
  if (error != 0) return;
  const auto number = answer<rdma_ucm_create_id_resp>().id;
  for (const joined& one : groups_) must(one.number != number, "two groups have one number");
  groups_.push_back({number, id, uid});
}

void program::leave(script& in, std::size_t file, std::uint32_t number) noexcept {
  rdma_ucm_destroy_id body{};
  body.id = number;
  const int error =
      serve(in, file, RDMA_USER_CM_CMD_LEAVE_MCAST, body, sizeof(rdma_ucm_destroy_id_resp));
  if (error != 0 && error != EFAULT) return;
  std::erase_if(groups_, [&](const joined& one) {
    if (one.number == number) told_[one.uid].is_gone = true;
    return one.number == number;
  });
}

void program::migrate(script& in, std::size_t file, std::uint32_t id) noexcept {
  rdma_ucm_migrate_id body{};
  body.id = id;
  const std::uint8_t from = in.byte();
  body.fd = from % 8 == 7 ? from : from % files;
  const int error =
      serve(in, file, RDMA_USER_CM_CMD_MIGRATE_ID, body, sizeof(rdma_ucm_migrate_resp));
  if (error == 0 || error == EFAULT)
    if (at(id).is_known && at(id).in == body.fd) at(id).in = file;
}

void program::write_event(script& in, std::size_t file, std::uint32_t id) noexcept {
  const std::uint8_t what = in.byte();
  write_event_command body{};
  body.id = id;
  body.event = what % 4 == 0 ? what : 18u + what % 2u;
  body.argument = in.take<std::uint32_t>();
  serve(in, file, write_event_number, body);
}

}  // namespace softverbs::fuzz
