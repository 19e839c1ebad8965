#include "multicast/group.hpp"
#include "multicast/membership.hpp"
#include "object/soft_verbs.hpp"
#include "qp/data_path.hpp"

#include <cerrno>
#include <cstring>
#include <mutex>

// Datagrams to groups: at most one copy goes to each process, and that process hands it to each
// attached queue pair. Before the payload of a frame, a copy has its MGID.

namespace softverbs {

namespace {

/// Gives a datagram to the members in this process, but not to the queue pair that sent it.
void deliver(node& local_node, const ibv_gid& group, const incoming& piece,
             const queue_pair* sender) noexcept {
  group_membership* const groups = local_node.groups();
  if (groups == nullptr) return;
  const group_membership::attached_qps to = groups->attached(group);
  for (std::uint32_t n = 0; n < to.count; ++n) {
    qp_slot* const slot = local_node.find(to.numbers[n]);
    if (slot == nullptr) continue;
    const std::lock_guard lock{slot->receive};
    queue_pair* const qp = slot->qp;
    if (qp == nullptr || qp == sender || !listens_to(*qp, piece.header)) continue;
    static_cast<void>(take(*qp, piece));
    raise_due(*qp);
  }
}

/// Sends a copy to a process. A copy that finds no room is lost: one slow member must not hold up
/// the others. False: the process cannot be reached.
bool send_copy(queue_pair& qp, const node_address& to, frame_header header,
               std::span<const std::byte> bytes) noexcept {
  link* const route = qp.local_node->link_to_member(to);
  if (route == nullptr) return false;
  constexpr std::uint32_t nobody_waits = 0;
  const ibv_gid& group = qp.request(qp.sends.next).datagram().gid;
  header.payload_bytes = static_cast<std::uint32_t>(sizeof group + bytes.size());
  const link::frame_room room = route->reserve(header, nobody_waits);
  if (room.result != sent::yes) return room.result == sent::full;
  std::memcpy(room.payload, &group, sizeof group);
  if (!bytes.empty()) std::memcpy(room.payload + sizeof group, bytes.data(), bytes.size());
  route->commit();
  return true;
}

}  // namespace

next_step execute_multicast(queue_pair& qp, send_request& request, quantum& now) noexcept {
  const ibv_gid& group = request.datagram().gid;
  // An address handle of the group made its context a user of the groups.
  group_membership& groups = *qp.local_node->groups();
  const clock::time_point time = clock::now();
  const group_membership::destination to = groups.members_of(group, time);
  if (to.ready > time) {
    qp.local_node->wake_at(qp.number(), to.ready);
    return next_step::wait;
  }
  std::byte gathered[port_mtu_bytes];
  if (!request.inlined && !gather(qp, qp.sends.next, 0, gathered, request.length))
    return fail(qp, IBV_WC_LOC_PROT_ERR);
  if (request.datagram().qpn != multicast_qpn) return succeed(qp);  // No member takes it.
  const std::span<const std::byte> bytes{request.inlined ? request.data() : gathered,
                                         request.length};
  frame_header header = header_for(qp, request);
  header.flags |= frame_flag::first | frame_flag::last;
  header.payload_bytes = request.length;
  deliver(*qp.local_node, group,
          {.header = header, .bytes = bytes.data(), .from = nullptr, .group = &group}, &qp);
  now.spend_bytes(request.length);
  if (to.members != nullptr) {
    for (const node_address& member : *to.members) {
      if (!send_copy(qp, member, header, bytes)) groups.suspend(group, member, time);
      now.spend_bytes(request.length);
    }
  }
  return succeed(qp);
}

void on_multicast(node& local_node, link& from, const frame_header& header,
                  const std::byte* payload) noexcept {
  ibv_gid group;
  if (header.payload_bytes < sizeof group) return;
  std::memcpy(&group, payload, sizeof group);
  frame_header datagram = header;
  datagram.payload_bytes -= static_cast<std::uint32_t>(sizeof group);
  deliver(local_node, group,
          {.header = datagram, .bytes = payload + sizeof group, .from = &from, .group = &group},
          nullptr);
}

namespace verb {

int attach_mcast(ibv_qp* handle, const ibv_gid* group, std::uint16_t) {
  if (handle->qp_type != IBV_QPT_UD || !is_multicast(*group)) return EINVAL;
  const device_limits& device = limits();
  return groups_of(handle->context)
      .attach(*group, handle->qp_num, static_cast<std::uint32_t>(device.max_mcast_grp),
              static_cast<std::uint32_t>(device.max_mcast_qp_attach));
}

int detach_mcast(ibv_qp* handle, const ibv_gid* group, std::uint16_t) {
  group_membership* const groups = softverbs::soft(handle->context).local_node->groups();
  return groups == nullptr ? EINVAL : groups->detach(*group, handle->qp_num);
}

}  // namespace verb
}  // namespace softverbs
