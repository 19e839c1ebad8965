#include "cm/machine.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>

// Commands for identifiers themselves: creating, destroying, moving them, and their options.

namespace softverbs::cm {

namespace {

constexpr std::size_t option_bytes_max = std::size_t{4} << 20;

}  // namespace

int machine::create_id(channel& in, const command_body& body) {
  if (body.out_bytes < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  rdma_ucm_create_id command;
  if (const int error = body.read(command)) return error;
  ibv_qp_type type{};
  switch (command.ps) {
    case RDMA_PS_TCP: type = IBV_QPT_RC; break;
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB: type = IBV_QPT_UD; break;
    case RDMA_PS_IB: type = static_cast<ibv_qp_type>(command.qp_type); break;
    default: return EINVAL;
  }
  identifier& made = create(in);
  made.user = command.uid;
  made.space = command.ps;
  made.qp_type = type;
  const rdma_ucm_create_id_resp answer{made.number};
  const int error = write_answer(command.response, &answer, sizeof answer);
  if (error != 0) destroy(made);
  return error;
}

int machine::destroy_id(channel& in, const command_body& body) {
  if (body.out_bytes < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  rdma_ucm_destroy_id command;
  if (const int error = body.read(command)) return error;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  identifier* listening = nullptr;
  if (one->told_in != nullptr)
    one->told_in->for_each([&](const event& waits) {
      if (waits.made == one) listening = waits.of;
    });
  const rdma_ucm_destroy_id_resp answer{destroy(*one)};
  if (listening != nullptr) admit_waiting(*listening);
  return write_answer(command.response, &answer, sizeof answer);
}

/// `in` is the new channel. Connect requests that wait, and what they made, go with their listener.
int machine::migrate_id(channel& in, const command_body& body, const channel_finder& find_channel) {
  rdma_ucm_migrate_id command;
  if (const int error = body.read(command)) return error;
  channel* old = nullptr;
  if (const int error = find_channel(static_cast<int>(command.fd), old)) return error;
  identifier* one = nullptr;
  if (const int error = find(*old, command.id, one)) return error;
  if (old->has_engine && !in.has_engine) return engine_needed;
  if (old != &in) {
    old->move_events(*one, in);
    one->reports_to = &in;
    in.for_each([&](const event& waits) {
      if (waits.of != one || waits.made == nullptr) return;
      waits.made->told_in = &in;
      if (waits.made->reports_to != old) return;
      // A program may have accepted by number: then its events wait behind the request.
      old->move_events(*waits.made, in);
      waits.made->reports_to = &in;
    });
  }
  const rdma_ucm_migrate_resp answer{one->events_reported};
  return write_answer(command.response, &answer, sizeof answer);
}

int machine::set_option(channel& in, const command_body& body) {
  rdma_ucm_set_option command;
  if (const int error = body.read(command)) return error;
  if (command.optlen > option_bytes_max) return EINVAL;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  if (command.level == RDMA_OPTION_IB && command.optname == RDMA_OPTION_IB_PATH)
    return set_ib_path(*one, command.optval, command.optlen);
  if (command.level != RDMA_OPTION_ID) return ENOSYS;
  std::uint8_t value[sizeof(int)]{};
  const std::size_t bytes = std::min<std::size_t>(command.optlen, sizeof value);
  const auto* const from =
      reinterpret_cast<const void*>(static_cast<std::uintptr_t>(command.optval));
  if (!guarded_copy(value, from, bytes)) return EFAULT;
  return set_id_option(*one, command.optname, value, command.optlen);
}

int machine::set_id_option(identifier& one, std::uint32_t name, const void* value,
                           std::size_t bytes) {
  const bool is_byte = bytes == sizeof(std::uint8_t);
  const std::uint8_t byte = *static_cast<const std::uint8_t*>(value);
  int flag = 0;
  if (bytes == sizeof flag) std::memcpy(&flag, value, sizeof flag);
  switch (name) {
    case RDMA_OPTION_ID_TOS:
      if (!is_byte) return EINVAL;
      one.service_type = byte;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (bytes != sizeof flag) return EINVAL;
      if (one.state != id_state::idle && (flag == 0 || one.state == id_state::listen))
        return EINVAL;
      one.reuse = flag != 0;
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      if (bytes != sizeof flag) return EINVAL;
      if (one.state != id_state::idle && one.state != id_state::bound) return EINVAL;
      one.family_only_set = true;
      one.family_only = flag != 0;
      return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (!is_byte) return EINVAL;
      if (one.qp_type != IBV_QPT_RC && one.qp_type != IBV_QPT_XRC_SEND) return EINVAL;
      one.ack_timeout_set = true;
      one.ack_timeout = byte;
      return 0;
    default: return ENOSYS;
  }
}

/// Resolves the route with a path record of the program, which asked a service of its own.
int machine::set_ib_path(identifier& one, std::uint64_t records, std::size_t bytes) {
  if (bytes % sizeof(ib_path_rec_data) != 0) return EINVAL;
  ib_path_rec_data record{};
  for (std::size_t at = 0; at < bytes; at += sizeof record) {
    const auto* const from =
        reinterpret_cast<const void*>(static_cast<std::uintptr_t>(records + at));
    if (!guarded_copy(&record, from, sizeof record)) return EFAULT;
    if (record.flags == usable_path) break;
  }
  if (record.flags != usable_path || !one.has_device || one.state != id_state::address_resolved)
    return EINVAL;
  one.route = unpacked(record);
  one.has_path = true;
  one.enter(id_state::route_resolved);
  raise(one, event_kind::route_resolved);
  return 0;
}

int machine::notify(channel& in, const command_body& body) {
  rdma_ucm_notify command;
  if (const int error = body.read(command)) return error;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  if (command.event != IBV_EVENT_COMM_EST) return EINVAL;  // There are no alternate paths.
  if (one->exchange == cm_state::established) return EISCONN;
  if (one->exchange != cm_state::reply_sent) return EINVAL;
  one->deadline = time::max();
  one->enter(cm_state::established);
  if (one->state == id_state::connect) raise(*one, event_kind::established);
  return 0;
}

/// Queues an event of the program's own, which wakes its threads in GET_EVENT. The kernel, too,
/// queues one for a connection that was not accepted yet.
int machine::write_event(channel& in, const command_body& body) {
  write_event_command command;
  if (const int error = body.read(command)) return error;
  const auto kind = static_cast<event_kind>(command.event);
  if (kind != event_kind::user && kind != event_kind::internal) return EINVAL;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  event written;
  written.of = one;
  written.answer.uid = one->user;
  written.answer.id = one->number;
  written.answer.event = command.event;
  written.answer.status = command.status;
  std::memcpy(&written.answer.param, &command.argument, sizeof command.argument);
  return in.push(written) ? 0 : ENOMEM;
}

}  // namespace softverbs::cm
