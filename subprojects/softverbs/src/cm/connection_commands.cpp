#include "cm/machine.hpp"
#include "node/gid_table.hpp"
#include "object/context.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

// Commands that send a message to the peer, and the attributes of the queue pair that follow from
// the messages.

namespace softverbs::cm {

namespace {

constexpr std::uint32_t mask_24_bits = 0xffffff;

void put_private_data(message& to, const void* data, std::size_t bytes) noexcept {
  to.private_bytes = static_cast<std::uint8_t>(bytes);
  std::memcpy(to.private_data, data, bytes);
}

/// Chooses the default Q_Key, unless the identifier has a Q_Key.
void choose_qkey(identifier& one) noexcept {
  if (one.qkey == 0) one.qkey = default_qkey;
}

rdma_ucm_ece masked(const rdma_ucm_ece& ece) noexcept {
  return {ece.vendor_id & mask_24_bits, ece.attr_mod};
}

}  // namespace

int machine::connect(channel& in, const command_body& body) {
  rdma_ucm_connect command;
  if (const int error = body.read(command, offsetof(rdma_ucm_connect, ece))) return error;
  if (command.conn_param.valid == 0) return EINVAL;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  if (one->state != id_state::route_resolved) return EINVAL;
  one->ece = masked(command.ece);
  return send_request(*one, command.conn_param);
}

int machine::send_request(identifier& one, const rdma_ucm_conn_param& with) {
  const bool datagram = one.is_datagram();
  if (!datagram && one.qp_type != IBV_QPT_RC && one.qp_type != IBV_QPT_UC &&
      one.qp_type != IBV_QPT_XRC_SEND)
    return EINVAL;
  if (with.private_data_len > (datagram ? sidr_request_private_bytes : request_private_bytes))
    return EINVAL;
  one.local_qpn = with.qp_num & mask_24_bits;
  one.srq = with.srq;
  one.responder_resources = with.responder_resources;
  one.initiator_depth = with.initiator_depth;
  one.retry_count = std::min(with.retry_count, retries_max);
  one.path_mtu = one.route.mtu;
  one.queue_timeout = static_cast<std::uint8_t>(one.route.life_time + 1);

  message& request = one.request;
  request = plain_message(datagram ? message_kind::sidr_request : message_kind::request);
  request.space = one.space;
  request.source = one.source.at();
  request.destination = one.target.at();
  request.qp_type = static_cast<std::uint8_t>(one.qp_type);
  put_private_data(request, with.private_data, with.private_data_len);
  if (!datagram) {
    const auto own_delay = static_cast<std::uint8_t>(limits().local_ca_ack_delay);
    request.qpn = one.local_qpn;
    request.psn = one.local_psn;
    request.responder_resources = with.responder_resources;
    request.initiator_depth = with.initiator_depth;
    request.flow_control = with.flow_control & 1;
    request.retry_count = one.retry_count;
    request.rnr_retry_count = std::min(with.rnr_retry_count, retries_max);
    request.srq = with.srq != 0 ? 1 : 0;
    request.path_mtu = one.path_mtu;
    request.ack_timeout = ack_timeout_of(own_delay, one.route.life_time);
    request.ece_vendor = one.ece.vendor_id;
    request.ece_options = one.ece.attr_mod;
  }
  const auto both_ways =
      datagram ? std::chrono::milliseconds{0} : 2 * milliseconds_of(one.route.life_time);
  one.answer_time = sends * (milliseconds_of(response_timeout) + both_ways);
  one.search_ends = host_.now() + search_time;
  if (!ask(one)) return ENOMEM;
  one.enter(id_state::connect);
  one.enter(datagram ? cm_state::sidr_request_sent : cm_state::request_sent);
  return 0;
}

int machine::listen(channel& in, const command_body& body) {
  rdma_ucm_listen command;
  if (const int error = body.read(command)) return error;
  identifier* one = nullptr;
  if (const int error = find(in, command.id, one)) return error;
  if (one->state != id_state::bound)
    if (const int error = bind(*one, address::wildcard(AF_INET))) return error;
  if (one->name)
    if (const int error = one->name->listen()) return error;
  constexpr auto most = std::uint32_t{backlog_max};
  const std::uint32_t wanted = command.backlog;
  one->backlog = static_cast<int>(wanted == 0 || wanted > most ? most : wanted);
  one->waiting_room = std::min(one->backlog, waiting_max);
  one->enter(id_state::listen);
  one->enter(cm_state::listen);
  return 0;
}

/// Answers a request, or, with no parameters, the reply to a request.
int machine::accept(channel& in, const command_body& body) {
  rdma_ucm_accept command;
  if (const int error = body.read(command, offsetof(rdma_ucm_accept, ece))) return error;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  if (one->state != id_state::connect) return EINVAL;
  const rdma_ucm_conn_param& with = command.conn_param;
  const bool valid = with.valid != 0;
  one->ece = masked(command.ece);
  if (valid) {
    one->local_qpn = with.qp_num & mask_24_bits;
    one->srq = with.srq;
  }
  int error = 0;
  if (one->is_datagram())
    error = send_sidr_reply(*one, sidr_status::success, with.private_data,
                            valid ? with.private_data_len : 0);
  else
    error = valid ? send_reply(*one, with) : send_ready(*one);
  if (error == 0) {
    if (valid) one->user = command.uid;
    return 0;
  }
  if (one->is_datagram())
    send_sidr_reply(*one, sidr_status::reject, nullptr, 0);
  else
    send_reject(*one, reject_reason::consumer_defined, nullptr, 0);
  return error;
}

int machine::send_reply(identifier& one, const rdma_ucm_conn_param& with) {
  if (with.private_data_len > reply_private_bytes) return EINVAL;
  if (one.exchange != cm_state::request_received) return EINVAL;
  one.responder_resources = with.responder_resources;
  one.initiator_depth = with.initiator_depth;
  message reply = plain_message(message_kind::reply);
  reply.qpn = one.local_qpn;
  reply.psn = one.local_psn;
  reply.responder_resources = with.responder_resources;
  reply.initiator_depth = with.initiator_depth;
  reply.flow_control = with.flow_control & 1;
  reply.rnr_retry_count = std::min(with.rnr_retry_count, retries_max);
  reply.srq = with.srq != 0 ? 1 : 0;
  reply.ack_timeout = static_cast<std::uint8_t>(limits().local_ca_ack_delay);
  reply.ece_vendor = one.ece.vendor_id;
  reply.ece_options = one.ece.attr_mod;
  put_private_data(reply, with.private_data, with.private_data_len);
  one.talk->send(reply);
  one.enter(cm_state::reply_sent);
  wait_for_answer(one);
  return 0;
}

int machine::send_ready(identifier& one) {
  if (one.exchange != cm_state::reply_received) return EINVAL;
  one.talk->send(plain_message(message_kind::ready));
  one.enter(cm_state::established);
  return 0;
}

int machine::send_reject(identifier& one, reject_reason reason, const void* data,
                         std::size_t bytes) {
  if (bytes > reject_private_bytes) return EINVAL;
  switch (one.exchange) {
    case cm_state::request_sent:
    case cm_state::request_received:
    case cm_state::reply_received:
    case cm_state::reply_sent: break;
    default: return EINVAL;
  }
  message refusal = plain_message(message_kind::reject, static_cast<std::uint16_t>(reason));
  if (bytes != 0) put_private_data(refusal, data, bytes);
  if (one.talk) one.talk->send(refusal);
  if (one.exchange == cm_state::reply_sent)
    enter_timewait(one);
  else
    end(one);
  return 0;
}

/// A requester that is gone does not hear the answer.
int machine::send_sidr_reply(identifier& one, sidr_status status, const void* data,
                             std::size_t bytes) {
  if (one.exchange != cm_state::sidr_request_received || bytes > sidr_reply_private_bytes)
    return EINVAL;
  message reply = plain_message(message_kind::sidr_reply, static_cast<std::uint16_t>(status));
  if (status == sidr_status::success) {
    choose_qkey(one);
    reply.qpn = one.local_qpn;
    reply.qkey = one.qkey;
    reply.ece_vendor = one.ece.vendor_id;
    reply.ece_options = one.ece.attr_mod;
  }
  if (bytes != 0) put_private_data(reply, data, bytes);
  if (one.talk) one.talk->send(reply);
  end(one);
  return 0;
}

int machine::reject(channel& in, const command_body& body) {
  rdma_ucm_reject command;
  if (const int error = body.read(command)) return error;
  auto reason = reject_reason::consumer_defined;
  if (command.reason != 0) reason = static_cast<reject_reason>(command.reason);
  if (reason != reject_reason::consumer_defined &&
      reason != reject_reason::vendor_option_not_supported)
    return EINVAL;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  return one->is_datagram()
             ? send_sidr_reply(*one, sidr_status::reject, command.private_data,
                               command.private_data_len)
             : send_reject(*one, reason, command.private_data, command.private_data_len);
}

/// Starts or answers a disconnect. As with the kernel, there may be nothing to do.
int machine::disconnect(channel& in, const command_body& body) {
  rdma_ucm_disconnect command;
  if (const int error = body.read(command)) return error;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  if (one->exchange == cm_state::none) return EINVAL;
  if (one->exchange == cm_state::established) {
    if (one->talk) one->talk->send(plain_message(message_kind::disconnect_request));
    one->enter(cm_state::disconnect_sent);
    wait_for_answer(*one);
  } else if (one->exchange == cm_state::disconnect_received) {
    if (one->talk) one->talk->send(plain_message(message_kind::disconnect_reply));
    enter_timewait(*one);
  }
  return 0;
}

namespace {

bool has_init_attributes(cm_state now) noexcept {
  switch (now) {
    case cm_state::request_sent:
    case cm_state::request_received:
    case cm_state::reply_received:
    case cm_state::reply_sent:
    case cm_state::established: return true;
    default: return false;
  }
}

/// The attributes of the peer are known once it has said something.
bool has_peer_attributes(cm_state now) noexcept {
  return has_init_attributes(now) && now != cm_state::request_sent;
}

void fill_init(const identifier& one, ib_uverbs_qp_attr& to) noexcept {
  to.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  to.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
  if (one.responder_resources != 0)
    to.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  to.port_num = only_port;
}

void fill_ready_to_receive(const identifier& one, ib_uverbs_qp_attr& to) noexcept {
  to.qp_attr_mask = IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
  to.ah_attr = ah_attr_of(one.route, gid_index(one.route.source));
  to.path_mtu = one.path_mtu;
  to.dest_qp_num = one.remote_qpn;
  to.rq_psn = one.local_psn;
  if (one.qp_type != IBV_QPT_RC && one.qp_type != IBV_QPT_XRC_RECV) return;
  to.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
  to.max_dest_rd_atomic = one.responder_resources;
}

void fill_ready_to_send(const identifier& one, ib_uverbs_qp_attr& to) noexcept {
  to.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
  to.sq_psn = one.remote_psn;
  const bool is_target = one.qp_type == IBV_QPT_XRC_RECV;
  const bool requests = one.qp_type == IBV_QPT_RC || one.qp_type == IBV_QPT_XRC_SEND;
  if (!is_target && !requests) return;
  to.qp_attr_mask |= IBV_QP_TIMEOUT;
  to.timeout = one.ack_timeout_set ? one.ack_timeout : one.queue_timeout;
  if (is_target) return;
  to.qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
  to.retry_cnt = one.retry_count;
  to.rnr_retry = one.rnr_retry_count;
  to.max_rd_atomic = one.initiator_depth;
}

/// Fills the attributes that do not depend on the peer: before the first message, and for
/// datagrams.
void fill_unconnected(identifier& one, ib_uverbs_qp_attr& to) noexcept {
  to.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
  to.port_num = only_port;
  if (one.is_datagram()) {
    choose_qkey(one);
    to.qkey = one.qkey;
    to.qp_attr_mask |= IBV_QP_QKEY;
  } else {
    to.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
  }
}

}  // namespace

int machine::init_qp_attr(channel& in, const command_body& body) {
  if (body.out_bytes < sizeof(ib_uverbs_qp_attr)) return ENOSPC;
  rdma_ucm_init_qp_attr command;
  if (const int error = body.read(command)) return error;
  if (command.qp_state > IBV_QPS_ERR) return EINVAL;
  identifier* one = nullptr;
  if (const int error = find_with_device(in, command.id, one)) return error;
  ib_uverbs_qp_attr answer{};
  answer.qp_state = command.qp_state;
  const cm_state now = one->exchange;
  if (one->is_datagram() || now == cm_state::none)
    fill_unconnected(*one, answer);
  else if (command.qp_state == IBV_QPS_INIT && has_init_attributes(now))
    fill_init(*one, answer);
  else if (command.qp_state == IBV_QPS_RTR && has_peer_attributes(now))
    fill_ready_to_receive(*one, answer);
  else if (command.qp_state == IBV_QPS_RTS && has_peer_attributes(now))
    fill_ready_to_send(*one, answer);
  else
    return EINVAL;
  return write_answer(command.response, &answer, sizeof answer);
}

}  // namespace softverbs::cm
