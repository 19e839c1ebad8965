#include "id_state.hpp"

#include "base/failures.hpp"
#include "failures.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <utility>

namespace cordma::cm {
namespace {

int milliseconds_of(time_span limit) noexcept {
  const auto count = std::chrono::ceil<std::chrono::milliseconds>(duration{limit}).count();
  return int(std::clamp<std::int64_t>(count, 1, INT_MAX));
}

// librdmacm writes to no address.
sockaddr* raw(const socket_address& address) noexcept {
  return const_cast<sockaddr*>(address.data());
}

rdma_conn_param parameters_of(std::uint32_t qpn, std::span<const std::byte> data,
                              const parameters& own) noexcept {
  rdma_conn_param to{};
  to.private_data = data.data();
  to.private_data_len = std::uint8_t(data.size());
  to.responder_resources = own.responder_resources;
  to.initiator_depth = own.initiator_depth;
  to.retry_count = own.retry_count;
  to.rnr_retry_count = own.rnr_retry_count;
  to.qp_num = qpn;
  return to;
}

/// The address that rdma_cm has filled in; `otherwise` before it has.
socket_address known(const sockaddr& address, const socket_address& otherwise) noexcept {
  if (address.sa_family == AF_INET) return {&address, sizeof(sockaddr_in)};
  if (address.sa_family == AF_INET6) return {&address, sizeof(sockaddr_in6)};
  return otherwise;
}

}  // namespace

id_state::id_state(event_channel& channel)
    : changed_{channel.executor()}, id_{channel.create_id(*this)} {}

id_state::id_state(event_channel& channel, owned_id request, const peer_message& message)
    : from_peer{message},
      phase_{id_phase::requested},
      changed_{channel.executor()},
      id_{std::move(request)} {
  if (id_ != nullptr) id_->context = static_cast<event_target*>(this);
}

task<> id_state::resolve(socket_address to, std::optional<socket_address> from, time_span limit) {
  expect(id_phase::idle);
  target_ = to;
  call_ = "rdma_resolve_addr";
  const int limit_ms = milliseconds_of(limit);
  if (rdma_resolve_addr(id_.get(), from ? raw(*from) : nullptr, raw(to), limit_ms) != 0)
    throw error{call_failure(errno, call_, to)};
  enter(id_phase::resolving_address);
  co_await left(id_phase::resolving_address);
  call_ = "rdma_resolve_route";
  if (rdma_resolve_route(id_.get(), limit_ms) != 0) throw error{call_failure(errno, call_, to)};
  enter(id_phase::resolving_route);
  co_await left(id_phase::resolving_route);
}

task<> id_state::connect(std::uint32_t qpn, std::span<const std::byte> data, parameters own) {
  expect(id_phase::resolved);
  call_ = "rdma_connect";
  check_private_data(data.size(), request_bytes_max, call_);
  rdma_conn_param request = parameters_of(qpn, data, own);
  if (rdma_connect(id_.get(), &request) != 0) throw error{call_failure(errno, call_, peer())};
  enter(id_phase::connecting);
  co_await left(id_phase::connecting);
}

void id_state::establish() {
  expect(id_phase::replied);
  if (rdma_establish(id_.get()) != 0) throw error{call_failure(errno, "rdma_establish", peer())};
  enter(id_phase::established);
}

void id_state::accept(std::uint32_t qpn, std::span<const std::byte> data, const parameters& own) {
  expect(id_phase::requested);
  call_ = "rdma_accept";
  check_private_data(data.size(), reply_bytes_max, call_);
  rdma_conn_param reply = parameters_of(qpn, data, own);
  const parameters& offer = from_peer.offer;
  reply.responder_resources = std::min(own.responder_resources, offer.responder_resources);
  reply.initiator_depth = std::min(own.initiator_depth, offer.initiator_depth);
  if (rdma_accept(id_.get(), &reply) != 0) throw error{call_failure(errno, call_, peer())};
  enter(id_phase::accepted);
}

void id_state::reject(std::span<const std::byte> data) {
  expect(id_phase::requested);
  check_private_data(data.size(), rejection_bytes_max, "rdma_reject");
  if (rdma_reject(id_.get(), data.data(), std::uint8_t(data.size())) != 0)
    throw error{call_failure(errno, "rdma_reject", peer())};
  why_ended = failure{.code = errc::refused, .call = "rdma_reject"};
  enter(id_phase::ended);
}

ibv_qp_attr id_state::attributes(ibv_qp_state state) const {
  ibv_qp_attr attributes{};
  attributes.qp_state = state;
  int mask = 0;
  if (rdma_init_qp_attr(id_.get(), &attributes, &mask) != 0)
    throw error{call_failure(errno, "rdma_init_qp_attr", peer())};
  return attributes;
}

std::unique_ptr<id_state> id_state::moved_to(event_channel& channel) {
  // The kernel tells nothing of a request before it is accepted, so no event is on its way.
  expect(id_phase::requested);
  // The new one is made first: no step may fail after the move.
  auto moved = std::make_unique<id_state>(channel, nullptr, from_peer);
  channel.adopt(*id_, *moved);
  moved->id_ = std::move(id_);
  moved->told = std::move(told);
  return moved;
}

socket_address id_state::local() const noexcept {
  return known(*rdma_get_local_addr(id_.get()), {});
}

socket_address id_state::peer() const noexcept {
  return known(*rdma_get_peer_addr(id_.get()), target_);
}

void id_state::on_event(const cm_event& event) noexcept {
  if (event.kind == RDMA_CM_EVENT_TIMEWAIT_EXIT) return tell(notice::timewait_over);
  if (phase_ == id_phase::ended) return;
  switch (event.kind) {
    case RDMA_CM_EVENT_ADDR_RESOLVED: return enter(id_phase::address_resolved);
    case RDMA_CM_EVENT_ROUTE_RESOLVED: return enter(id_phase::resolved);
    case RDMA_CM_EVENT_CONNECT_RESPONSE: from_peer = event.message; return enter(id_phase::replied);
    case RDMA_CM_EVENT_ESTABLISHED: return enter(id_phase::established);
    case RDMA_CM_EVENT_REJECTED: from_peer = event.message; return on_end(event);
    case RDMA_CM_EVENT_DISCONNECTED:
      // The peer waits for the answer. If this is the peer's answer, there is nothing to say.
      disconnect();
      return on_end(event);
    case RDMA_CM_EVENT_ADDR_ERROR:
    case RDMA_CM_EVENT_ROUTE_ERROR:
    case RDMA_CM_EVENT_CONNECT_ERROR:
    case RDMA_CM_EVENT_UNREACHABLE:
    case RDMA_CM_EVENT_DEVICE_REMOVAL: return on_end(event);
    default: return;  // ADDR_CHANGE, and what later kernels tell.
  }
}

void id_state::on_end(const cm_event& event) noexcept {
  why_ended = event_failure(event, call_, peer());
  enter(id_phase::ended);
  tell(notice::ended);
}

void id_state::tell(notice what) noexcept {
  // The function may destroy this object.
  const callback<void(notice)> function = told;
  if (function) function(what);
}

void id_state::enter(id_phase next) noexcept {
  phase_ = next;
  changed_.set();
}

task<> id_state::left(id_phase phase) {
  while (phase_ == phase) {
    changed_.reset();
    co_await changed_.wait();
  }
  if (phase_ == id_phase::ended) throw error{*why_ended};
}

void id_state::expect(id_phase phase) const {
  if (phase_ == id_phase::ended) throw error{*why_ended};
  CORDMA_ASSERT(phase_ == phase, "a call of a cm::id that is not in its turn");
}

}  // namespace cordma::cm
