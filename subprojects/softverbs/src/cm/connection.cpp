#include "cm/machine.hpp"
#include "link/ip_address.hpp"
#include "node/gid_table.hpp"
#include "object/context.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

// A peer's messages and the clock change a connection here. A peer is not trusted: each message is
// taken only in the states in which it makes sense, and is ignored in all others.

namespace softverbs::cm {

namespace {

/// The part of an event that all messages fill alike.
template <class Parameters>
void put_private_data(Parameters& to, const message& from, std::size_t padded_bytes) noexcept {
  std::memcpy(to.private_data, from.private_data,
              std::min<std::size_t>(from.private_bytes, padded_bytes));
  to.private_data_len = static_cast<std::uint8_t>(padded_bytes);
}

/// The peer's resources serve our requests, and the other way round.
rdma_ucm_conn_param parameters_of(const message& from, std::size_t padded_bytes) noexcept {
  rdma_ucm_conn_param result{};
  put_private_data(result, from, padded_bytes);
  result.qp_num = from.qpn;
  result.srq = from.srq;
  result.responder_resources = from.initiator_depth;
  result.initiator_depth = from.responder_resources;
  result.flow_control = from.flow_control;
  result.retry_count = std::min(from.retry_count, retries_max);
  result.rnr_retry_count = std::min(from.rnr_retry_count, retries_max);
  return result;
}

event made_event(event_kind kind, std::int32_t status = 0) noexcept {
  event result;
  result.answer.event = static_cast<std::uint32_t>(kind);
  result.answer.status = static_cast<std::uint32_t>(status);
  return result;
}

bool is_datagram_request(const message& request) noexcept {
  return request.kind == message_kind::sidr_request;
}

/// A peer on another host has the address of its socket, whatever address its message claims.
bool source_is_true(const conversation& from, const message& request) noexcept {
  const in6_addr host = from.peer_host();
  return same(host, this_host) || same(host, request.source.address);
}

}  // namespace

// ---- requests

void refuse(conversation& from, const message& request, reject_reason reason,
            sidr_status status) noexcept {
  if (is_datagram_request(request))
    from.send(plain_message(message_kind::sidr_reply, static_cast<std::uint16_t>(status)));
  else
    from.send(plain_message(message_kind::reject, static_cast<std::uint16_t>(reason)));
}

/// The type of the queue pair that a request asks for: an initiator of XRC wants a target.
ibv_qp_type wanted_type(const message& request) noexcept {
  if (is_datagram_request(request)) return IBV_QPT_UD;
  const auto type = static_cast<ibv_qp_type>(request.qp_type);
  if (type == IBV_QPT_XRC_RECV) return IBV_QPT_XRC_SEND;  // A target connects with nobody.
  return type == IBV_QPT_XRC_SEND ? IBV_QPT_XRC_RECV : type;
}

void machine::on_request(binding& name, std::unique_ptr<conversation> from,
                         const message& request) noexcept {
  const auto found = std::find_if(identifiers_.begin(), identifiers_.end(), [&](const auto& one) {
    return one && one->name.get() == &name && one->state == id_state::listen;
  });
  if (found == identifiers_.end())
    return refuse(*from, request, reject_reason::invalid_service_id, sidr_status::unsupported);
  identifier& listening = **found;
  if (wanted_type(request) != listening.qp_type)
    return refuse(*from, request, reject_reason::consumer_defined, sidr_status::reject);
  if (!source_is_true(*from, request) || gid_index(address{request.destination}.gid()) < 0)
    return refuse(*from, request, reject_reason::invalid_gid, sidr_status::reject);
  if (!is_datagram_request(request) &&
      (request.path_mtu < IBV_MTU_256 || request.path_mtu > IBV_MTU_4096))
    return refuse(*from, request, reject_reason::invalid_mtu, sidr_status::reject);
  if (listening.backlog > 0) return admit(listening, std::move(from), request);
  // The kernel's requester would send again until there is room; here the request waits.
  const auto room = static_cast<std::size_t>(listening.waiting_room);
  if (listening.waiting.size() < room) {
    try {
      listening.waiting.emplace_back(listening, std::move(from), request);
      return;
    } catch (const std::bad_alloc&) {  // `from` was not moved: the list had no memory for it.
    }
  }
  refuse(*from, request, reject_reason::no_resources, sidr_status::reject);
}

void machine::admit_waiting(identifier& listening) noexcept {
  if (listening.waiting.empty()) return;
  waiting_request& oldest = listening.waiting.front();
  std::unique_ptr<conversation> from = std::move(oldest.from);
  const message request = oldest.request;
  listening.waiting.pop_front();
  admit(listening, std::move(from), request);
}

void machine::admit(identifier& listening, std::unique_ptr<conversation> from,
                    const message& request) noexcept {
  identifier* made = nullptr;
  try {
    made = &create(*listening.reports_to);
  } catch (const std::bad_alloc&) {
    return refuse(*from, request, reject_reason::no_resources, sidr_status::reject);
  }
  identifier& one = *made;
  const bool datagram = is_datagram_request(request);
  one.space = listening.space;
  one.qp_type = listening.qp_type;
  one.source = address{request.destination};
  one.destination = address{request.source};
  one.has_device = true;
  one.route.source = one.source_gid();
  one.route.destination = one.destination_gid();
  one.route.flow_label = flow_label_of(request.source.port, request.destination.port);
  one.talk = std::move(from);
  one.talk->set_user(one);
  one.state = id_state::connect;  // A connection begins in this state.
  one.enter(datagram ? cm_state::sidr_request_received : cm_state::request_received);
  event happened = made_event(event_kind::connect_request);
  happened.of = &listening;
  happened.made = &one;
  happened.answer.uid = listening.user;
  happened.answer.id = one.number;
  if (datagram) {
    put_private_data(happened.answer.param.ud, request, sidr_request_private_bytes);
  } else {
    one.remote_qpn = request.qpn;
    one.remote_psn = request.psn;
    one.responder_resources = request.initiator_depth;
    one.initiator_depth = request.responder_resources;
    one.retry_count = std::min(request.retry_count, retries_max);
    one.rnr_retry_count = std::min(request.rnr_retry_count, retries_max);
    one.path_mtu = one.route.mtu = request.path_mtu;
    one.queue_timeout = std::clamp<std::uint8_t>(request.ack_timeout, 1, life_time_max);
    one.route.life_time = static_cast<std::uint8_t>(one.queue_timeout - 1);
    one.has_path = true;
    one.answer_time = sends * milliseconds_of(response_timeout);
    happened.answer.param.conn = parameters_of(request, request_private_bytes);
    happened.answer.ece = {request.ece_vendor, request.ece_options};
  }
  if (!listening.reports_to->push(happened)) {
    destroy(one);
    return;
  }
  one.told_in = listening.reports_to;
  --listening.backlog;
}

// ---- messages

void machine::on_message(identifier& one, const message& from_peer) noexcept {
  switch (from_peer.kind) {
    case message_kind::reply: return on_reply(one, from_peer);
    case message_kind::ready:
      if (one.exchange != cm_state::reply_sent) return;
      one.deadline = time::max();
      one.enter(cm_state::established);
      if (one.state == id_state::connect) raise(one, event_kind::established);
      return;
    case message_kind::reject: return on_reject(one, from_peer.reason, from_peer);
    case message_kind::disconnect_request:
      if (one.exchange != cm_state::reply_sent && one.exchange != cm_state::established &&
          one.exchange != cm_state::disconnect_sent)
        return;
      one.deadline = time::max();
      one.enter(cm_state::disconnect_received);
      return on_disconnect(one, 0);
    case message_kind::disconnect_reply:
      if (one.exchange != cm_state::disconnect_sent &&
          one.exchange != cm_state::disconnect_received)
        return;
      enter_timewait(one);
      return on_disconnect(one, 0);
    case message_kind::sidr_reply: return on_sidr_reply(one, from_peer);
    case message_kind::request:
    case message_kind::sidr_request: return;  // Only the first message is a request.
  }
}

void machine::on_reply(identifier& one, const message& reply) noexcept {
  if (one.exchange != cm_state::request_sent) return;
  one.deadline = time::max();
  one.enter(cm_state::reply_received);
  one.remote_qpn = reply.qpn;
  one.remote_psn = reply.psn;
  one.initiator_depth = reply.responder_resources;
  one.responder_resources = reply.initiator_depth;
  one.rnr_retry_count = std::min(reply.rnr_retry_count, retries_max);
  one.queue_timeout = ack_timeout_of(std::min(reply.ack_timeout, life_time_max),
                                     static_cast<std::uint8_t>(one.queue_timeout - 1));
  event happened = made_event(event_kind::connect_response);
  happened.answer.param.conn = parameters_of(reply, reply_private_bytes);
  happened.answer.param.conn.retry_count = 0;  // A reply has no retry count.
  happened.answer.ece = {reply.ece_vendor, reply.ece_options};
  raise(one, happened);
}

void machine::on_reject(identifier& one, std::uint16_t reason, const message& from) noexcept {
  switch (one.exchange) {
    case cm_state::request_sent:
    case cm_state::request_received:
    case cm_state::reply_sent: end(one); break;
    case cm_state::reply_received:
    case cm_state::established:
    case cm_state::disconnect_sent: enter_timewait(one); break;
    default: return;
  }
  if (one.state != id_state::connect) return;
  event happened = made_event(event_kind::rejected, reason);
  put_private_data(happened.answer.param.conn, from, reject_private_bytes);
  raise(one, happened);
}

void machine::on_disconnect(identifier& one, std::int32_t status) noexcept {
  if (one.state != id_state::connect) return;
  one.enter(id_state::disconnect);
  raise(one, event_kind::disconnected, status);
}

void machine::on_sidr_reply(identifier& one, const message& reply) noexcept {
  if (one.exchange != cm_state::sidr_request_sent) return;
  end(one);
  event happened = made_event(event_kind::established);
  rdma_ucm_ud_param& to = happened.answer.param.ud;
  put_private_data(to, reply, sidr_reply_private_bytes);
  if (reply.reason != static_cast<std::uint16_t>(sidr_status::success)) {
    happened = made_event(event_kind::unreachable, reply.reason);
    put_private_data(happened.answer.param.ud, reply, sidr_reply_private_bytes);
  } else if (reply.qkey == 0 || (one.qkey != 0 && one.qkey != reply.qkey)) {
    happened = made_event(event_kind::address_error, -EINVAL);
  } else {
    one.qkey = reply.qkey;
    to.qp_num = reply.qpn;
    to.qkey = reply.qkey;
    to.ah_attr = ah_attr_of(one.route, gid_index(one.route.source));
  }
  raise(one, happened);
}

// ---- ends

/// The socket ended. A peer that ends in order says so before; this peer died, or is out of reach.
void machine::on_end(identifier& one, int error) noexcept {
  const std::unique_ptr<conversation> ended = std::move(one.talk);
  const bool nobody_listens = error == ECONNREFUSED;
  switch (one.exchange) {
    case cm_state::request_sent:
      if (nobody_listens && ask_later(one)) return;
      if (nobody_listens)
        return on_reject(one, static_cast<std::uint16_t>(reject_reason::invalid_service_id), {});
      [[fallthrough]];
    case cm_state::request_received:
    case cm_state::reply_sent:
    case cm_state::reply_received: end(one); return raise(one, event_kind::unreachable, -ETIMEDOUT);
    case cm_state::sidr_request_sent:
      if (nobody_listens && ask_later(one)) return;
      end(one);
      return raise(
          one, event_kind::unreachable,
          nobody_listens ? static_cast<std::int32_t>(sidr_status::unsupported) : -ETIMEDOUT);
    case cm_state::established:
      one.enter(cm_state::disconnect_received);
      return on_disconnect(one, 0);
    case cm_state::disconnect_sent: enter_timewait(one); return on_disconnect(one, 0);
    default: return;
  }
}

void machine::on_deadline(identifier& one) noexcept {
  one.deadline = time::max();
  switch (one.exchange) {
    case cm_state::request_sent:
    case cm_state::sidr_request_sent:
      if (!one.talk && ask(one)) return;
      [[fallthrough]];
    case cm_state::reply_sent: end(one); return raise(one, event_kind::unreachable, -ETIMEDOUT);
    case cm_state::disconnect_sent: enter_timewait(one); return on_disconnect(one, -ETIMEDOUT);
    case cm_state::timewait:
      one.enter(cm_state::idle);
      if (one.state == id_state::disconnect) raise(one, event_kind::timewait_exit);
      return;
    default: return;
  }
}

/// No more messages; what was sent still arrives.
void machine::enter_timewait(identifier& one) noexcept {
  one.talk.reset();
  one.enter(cm_state::timewait);
  set_deadline(one, host_.now() + milliseconds_of(one.queue_timeout));
}

void machine::end(identifier& one) noexcept {
  one.talk.reset();
  one.deadline = time::max();
  one.enter(cm_state::idle);
}

// ---- events

void machine::raise(identifier& one, event_kind kind, std::int32_t status) noexcept {
  raise(one, made_event(kind, status));
}

/// A connection has no `user` before it is accepted, and then its events are dropped, as the
/// kernel's are. An event for which there is no memory is dropped, too.
void machine::raise(identifier& one, event happened) noexcept {
  if (one.user == 0) return;
  happened.of = &one;
  happened.answer.uid = one.user;
  happened.answer.id = one.number;
  one.reports_to->push(happened);
}

}  // namespace softverbs::cm
