#include "node/port.hpp"
#include "node/simulation.hpp"
#include "object/context.hpp"
#include "object/soft_verbs.hpp"
#include "qp/change_lock.hpp"
#include "qp/queue_pair.hpp"
#include "qp/relay.hpp"
#include "qp/send_builder.hpp"

#include <netinet/in.h>
#include <algorithm>
#include <cerrno>
#include <mutex>

namespace softverbs {
namespace {

constexpr std::uint8_t sole_port = 1;
constexpr unsigned timer_code_max = 31;  ///< `timeout` and `min_rnr_timer` have five bits
constexpr unsigned retry_max = 7;        ///< three bits
constexpr unsigned access_known = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC |
                                  IBV_ACCESS_MW_BIND | IBV_ACCESS_ON_DEMAND |
                                  IBV_ACCESS_OPTIONAL_RANGE;
constexpr int attributes_known =
    IBV_QP_STATE | IBV_QP_CUR_STATE | IBV_QP_EN_SQD_ASYNC_NOTIFY | IBV_QP_ACCESS_FLAGS |
    IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_TIMEOUT |
    IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_RQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC |
    IBV_QP_ALT_PATH | IBV_QP_MIN_RNR_TIMER | IBV_QP_SQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
    IBV_QP_PATH_MIG_STATE | IBV_QP_CAP | IBV_QP_DEST_QPN | IBV_QP_RATE_LIMIT;

bool is_unicast(const union ibv_gid& gid) {
  in6_addr address;
  std::copy_n(gid.raw, sizeof address.s6_addr, address.s6_addr);
  if (IN6_IS_ADDR_UNSPECIFIED(&address) || IN6_IS_ADDR_MULTICAST(&address)) return false;
  return !IN6_IS_ADDR_V4MAPPED(&address) || (address.s6_addr[12] & 0xf0) != 0xe0;
}

bool is_good(const ibv_ah_attr& path) {
  if (path.port_num != sole_port || !host_of(path)) return false;
  return path.is_global == 0 || is_unicast(path.grh.dgid);
}

/// The attributes that soft0 does not support: alternate paths, resizing, pacing.
bool is_unsupported(const ibv_qp_attr& attr, int mask) {
  if ((mask & (IBV_QP_ALT_PATH | IBV_QP_CAP | IBV_QP_RATE_LIMIT)) != 0) return true;
  return (mask & IBV_QP_PATH_MIG_STATE) != 0 && attr.path_mig_state != IBV_MIG_MIGRATED;
}

/// Reads no attribute beyond the mask: programs leave those uninitialized.
bool is_valid(const ibv_qp_attr& attr, int mask) {
  const auto has = [mask](int attribute) { return (mask & attribute) != 0; };
  const auto& device = limits();
  return !(
      (has(IBV_QP_PORT) && attr.port_num != sole_port) ||
      (has(IBV_QP_PKEY_INDEX) && attr.pkey_index != 0) ||
      (has(IBV_QP_ACCESS_FLAGS) && (attr.qp_access_flags & ~access_known) != 0) ||
      (has(IBV_QP_AV) && !is_good(attr.ah_attr)) ||
      (has(IBV_QP_DEST_QPN) && attr.dest_qp_num > qpn_max) ||
      (has(IBV_QP_PATH_MTU) && (attr.path_mtu < IBV_MTU_256 || attr.path_mtu > IBV_MTU_4096)) ||
      (has(IBV_QP_TIMEOUT) && attr.timeout > timer_code_max) ||
      (has(IBV_QP_MIN_RNR_TIMER) && attr.min_rnr_timer > timer_code_max) ||
      (has(IBV_QP_RETRY_CNT) && attr.retry_cnt > retry_max) ||
      (has(IBV_QP_RNR_RETRY) && attr.rnr_retry > retry_max) ||
      (has(IBV_QP_MAX_QP_RD_ATOMIC) &&
       (attr.max_rd_atomic > device.max_qp_init_rd_atom || attr.max_rd_atomic > rd_atomic_max)) ||
      (has(IBV_QP_MAX_DEST_RD_ATOMIC) && (attr.max_dest_rd_atomic > device.max_qp_rd_atom ||
                                          attr.max_dest_rd_atomic > rd_atomic_max)));
}

/// Checks the current state that the program may name, where the device can change the state.
bool is_current(const ibv_qp_attr& attr, int mask, ibv_qp_state current) {
  if ((mask & IBV_QP_CUR_STATE) == 0) return true;
  return attr.cur_qp_state == current && (current == IBV_QPS_RTR || current == IBV_QPS_RTS ||
                                          current == IBV_QPS_SQD || current == IBV_QPS_SQE);
}

void store(ibv_qp_attr& kept, const ibv_qp_attr& attr, int mask) {
  const auto take = [&](int attribute, auto member) {
    if ((mask & attribute) != 0) kept.*member = attr.*member;
  };
  take(IBV_QP_EN_SQD_ASYNC_NOTIFY, &ibv_qp_attr::en_sqd_async_notify);
  take(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  take(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  take(IBV_QP_PORT, &ibv_qp_attr::port_num);
  take(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  take(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  take(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  take(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  take(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  take(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  take(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  take(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  take(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  take(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  take(IBV_QP_PATH_MIG_STATE, &ibv_qp_attr::path_mig_state);
  take(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
}

connection_terms terms_of(const ibv_qp_attr& attr) {
  constexpr unsigned shift_of_mtu_zero = 7;  // IBV_MTU_256 is 1.
  return {.peer_qpn = attr.dest_qp_num,
          .mtu_shift = static_cast<std::uint8_t>(shift_of_mtu_zero + attr.path_mtu),
          .rd_atomic_max = attr.max_rd_atomic,
          .dest_rd_atomic_max = attr.max_dest_rd_atomic,
          .retries = attr.retry_cnt,
          .rnr_retries = attr.rnr_retry,
          .access = static_cast<std::uint8_t>(attr.qp_access_flags)};
}

/// Finds the peer of a connected queue pair, and opens the route to it before the first request.
void find_peer(queue_pair& qp) {
  qp.peer = qp.local_node->resolve(*host_of(qp.attr.ah_attr), qp.attr.dest_qp_num);
  qp.is_peer_local = qp.local_node->is_local(qp.peer);
  qp.peer_slot = qp.is_peer_local ? qp.local_node->find(qp.attr.dest_qp_num) : nullptr;
  const bool sends = !qp.is_peer_local && qp.type() != IBV_QPT_XRC_RECV;
  qp.requester.route = sends ? qp.local_node->link_to(qp.peer) : nullptr;
  if (qp.requester.route != nullptr)
    qp.requester.route_generation = qp.requester.route->generation();
}

/// Moves the QP to RESET. As on hardware, queued requests do not complete and unpolled CQEs are
/// dropped: later CQEs belong to the new connection.
void reset(queue_pair& qp) {
  qp.state = IBV_QPS_RESET;
  qp.flush_due = false;
  orphan_answers(qp);
  release_all(qp);
  // XRC: an initiator has no receives, and a target's belong to queues that others use, too.
  if (qp.handle.qp_base.send_cq != nullptr) forget(qp.send_cq(), qp.number());
  if (qp.handle.qp_base.recv_cq != nullptr) forget(qp.receive_cq(), qp.number());
  while (!qp.receives.empty()) qp.receives.pop();
  qp.requester = {};
  qp.responder = {};
  qp.slot->expected = {};
  if (qp.passed_on) {
    *qp.passed_on = {};
    qp.local_node->kick(qp.terms.peer_qpn);  // An initiator in this process waits no longer.
  }
  qp.attr = {};
  qp.terms = {};
  qp.is_draining = false;
  qp.has_rate_limit = false;
  qp.peer = {};
  qp.peer_slot = nullptr;
  qp.is_peer_local = false;
  qp.local_node->wake_at(qp.number(), clock::time_point::max());
}

void get_ready_to_send(queue_pair& qp, ibv_qp_state from) {
  if (from == IBV_QPS_RTR) {
    qp.requester.psn = qp.attr.sq_psn & psn_mask;
    qp.requester.epoch = qp.local_node->next_epoch();
  }
  qp.requester.retries_left = qp.terms.retries;
  qp.requester.rnr_retries_left = qp.terms.rnr_retries;
  qp.is_draining = false;
  qp.attr.en_sqd_async_notify = 0;  // Each move to SQD requests the event anew.
  // Requests that were posted in SQD continue: change_lock kicks.
  qp.state = IBV_QPS_RTS;
}

void enter(queue_pair& qp, ibv_qp_state from, ibv_qp_state to) {
  switch (to) {
    case IBV_QPS_RESET: reset(qp); break;
    case IBV_QPS_RTR: qp.slot->expected.psn = qp.attr.rq_psn & psn_mask; [[fallthrough]];
    case IBV_QPS_INIT: qp.state = to; break;
    case IBV_QPS_RTS: get_ready_to_send(qp, from); break;
    case IBV_QPS_SQD:
      qp.state = to;
      // The kick of change_lock raises IBV_EVENT_SQ_DRAINED once nothing is in flight.
      if (from != to) qp.is_draining = true;
      break;
    default: enter_error(qp); flush(qp);
  }
  qp.handle.qp_base.state = to;
}

/// Takes the answers that the peer's process has given: what it acknowledged before the queue pair
/// ends has succeeded. Call without a lock.
void hear_out(queue_pair& qp) {
  constexpr int batches_max = 64;  // More than a ring holds: a peer that goes on ends nothing.
  link* route = nullptr;
  {
    const change_lock send{qp};
    route = qp.requester.route;
  }
  if (route == nullptr) return;
  for (int n = 0; n < batches_max && (n == 0 || route->has_work()); ++n)
    route->serve(*qp.local_node, true);
}

}  // namespace

namespace verb {

int modify_qp(ibv_qp* handle, ibv_qp_attr* attr, int mask) {
  auto& qp = *reinterpret_cast<queue_pair*>(handle);
  if ((mask & ~attributes_known) != 0) return EINVAL;
  const bool ends =
      mask == IBV_QP_STATE && (attr->qp_state == IBV_QPS_ERR || attr->qp_state == IBV_QPS_RESET);
  const simulated_host* const simulated = qp.local_node->simulated();
  if (!ends && simulated != nullptr && simulated->has_failed()) return EIO;
  if (ends) hear_out(qp);
  const change_lock send{qp};
  // A long message of a local peer takes the other lock again for each piece. The message ends when
  // it sees this state.
  if (ends) enter_error(qp);
  const std::lock_guard receive{qp.slot->receive};
  if (mask == 0) return 0;
  const ibv_qp_state from = qp.state.load();
  const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attr->qp_state : from;
  if (!is_current(*attr, mask, from)) return EINVAL;
  if (is_unsupported(*attr, mask)) return EOPNOTSUPP;
  if (int error = check_transition(qp.type(), from, to, mask)) return error;
  if (!is_valid(*attr, mask)) return EINVAL;
  // Requests in flight would miss their answers.
  if (from == IBV_QPS_SQD && (mask & IBV_QP_AV) != 0 && qp.sends.completed < qp.begun())
    return EINVAL;
  store(qp.attr, *attr, mask);
  qp.terms = terms_of(qp.attr);
  if ((mask & IBV_QP_AV) != 0) find_peer(qp);
  enter(qp, from, to);
  return 0;
}

int modify_qp_rate_limit(ibv_qp* handle, ibv_qp_rate_limit_attr* attr) {
  auto& qp = *reinterpret_cast<queue_pair*>(handle);
  const ibv_packet_pacing_caps& device = limits().pacing;
  if ((device.supported_qpts & (1u << qp.type())) == 0) return EOPNOTSUPP;
  const bool is_limited = attr->rate_limit != 0;
  if (attr->comp_mask != 0 || (is_limited && (attr->rate_limit < device.qp_rate_limit_min ||
                                              attr->rate_limit > device.qp_rate_limit_max)))
    return EINVAL;
  auto rate = std::make_unique<pacer>();
  rate->limit(attr->rate_limit, attr->max_burst_sz, clock::now());
  // The end of the lock kicks a queue pair that waits for the old limit.
  const change_lock send{qp};
  const ibv_qp_state state = qp.state.load();
  if (state != IBV_QPS_RTS && state != IBV_QPS_SQD) return EINVAL;
  qp.rate = std::move(rate);
  qp.has_rate_limit = is_limited;
  qp.attr.rate_limit = attr->rate_limit;
  return 0;
}

}  // namespace verb
}  // namespace softverbs
