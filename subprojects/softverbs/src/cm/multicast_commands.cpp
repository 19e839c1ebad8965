#include "cm/machine.hpp"
#include "multicast/group.hpp"
#include "node/gid_table.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

// Commands for multicast groups. A join only tells the program the group's address, and a leave
// only forgets the join. librdmacm attaches the queue pair of a full member, and detaches it.

namespace softverbs::cm {

namespace {

/// The MGID that the address names itself (AF_IB), or to which RoCE maps the address.
ibv_gid mgid_of(const address& group) noexcept {
  if (group.family() != family_ib) return group.gid();
  ibv_gid mgid;
  std::memcpy(&mgid, group.ib().address, sizeof mgid);
  return mgid;
}

}  // namespace

int machine::join_ip(channel& in, const command_body& body) {
  rdma_ucm_join_ip_mcast command;
  constexpr std::size_t needed = offsetof(rdma_ucm_join_ip_mcast, id) + sizeof command.id;
  if (const int error = body.read(command, needed)) return error;
  const address group{&command.addr, sizeof command.addr};
  if (group.bytes() == 0) return EINVAL;
  rdma_ucm_join_mcast general{};
  general.response = command.response;
  general.uid = command.uid;
  general.id = command.id;
  general.join_flags = RDMA_MC_JOIN_FLAG_FULLMEMBER;
  return join_group(in, general, group, body);
}

int machine::join(channel& in, const command_body& body) {
  rdma_ucm_join_mcast command;
  if (const int error = body.read(command)) return error;
  const address group{&command.addr, sizeof command.addr};
  if (group.bytes() == 0 || group.bytes() != command.addr_size) return EINVAL;
  return join_group(in, command, group, body);
}

int machine::join_group(channel& in, const rdma_ucm_join_mcast& command, const address& group,
                        const command_body& body) {
  if (body.out_bytes < sizeof(rdma_ucm_create_id_resp)) return ENOSPC;
  if (command.join_flags >= RDMA_MC_JOIN_FLAG_RESERVED) return EINVAL;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  if (one->state != id_state::bound && one->state != id_state::address_resolved) return EINVAL;
  if (!one->is_datagram() || !is_multicast(mgid_of(group))) return EINVAL;

  const auto free = std::find(groups_.begin(), groups_.end(), nullptr);
  const auto number = static_cast<std::uint32_t>(free - groups_.begin());
  if (free == groups_.end()) groups_.push_back(nullptr);
  membership& made = one->groups.emplace_back();
  made.number = number;
  made.of = one;
  made.user = command.uid;
  made.group = mgid_of(group);
  const rdma_ucm_create_id_resp answer{number};
  if (const int error = write_answer(command.response, &answer, sizeof answer)) {
    one->groups.pop_back();
    return error;
  }
  groups_[number] = &made;
  if (one->qkey == 0) one->qkey = default_qkey;
  path route;
  route.source = one->source_gid();
  route.destination = made.group;
  event happened;
  happened.of = one;
  happened.group = &made;
  happened.answer.uid = made.user;
  happened.answer.id = number;
  happened.answer.event = static_cast<std::uint32_t>(event_kind::multicast_join);
  happened.answer.param.ud.qp_num = multicast_qpn;
  happened.answer.param.ud.qkey = one->qkey;
  happened.answer.param.ud.ah_attr = ah_attr_of(route, gid_index(route.source));
  in.push(happened);
  return 0;
}

int machine::leave(channel& in, const command_body& body) {
  if (body.out_bytes < sizeof(rdma_ucm_destroy_id_resp)) return ENOSPC;
  rdma_ucm_destroy_id command;
  if (const int error = body.read(command)) return error;
  membership* const left = command.id < groups_.size() ? groups_[command.id] : nullptr;
  if (left == nullptr) return ENOENT;
  if (left->of->reports_to != &in) return EINVAL;
  const rdma_ucm_destroy_id_resp answer{left->events_reported};
  leave_group(*left);
  return write_answer(command.response, &answer, sizeof answer);
}

void machine::leave_group(membership& left) noexcept {
  groups_[left.number] = nullptr;
  identifier& of = *left.of;
  of.reports_to->revoke([&](const event& waits) { return waits.group == &left; });
  of.groups.remove_if([&](const membership& one) { return &one == &left; });
}

}  // namespace softverbs::cm
