#include "datagram_id.hpp"

#include "base/failures.hpp"
#include "failures.hpp"
#include "id.hpp"

#include <arpa/inet.h>
#include <infiniband/ib.h>

#include <cerrno>
#include <chrono>
#include <cstring>

namespace cordma::cm {
namespace {

constexpr int limit_ms = int(std::chrono::milliseconds{id::resolve_timeout}.count());
/// Status of a SIDR reply (IBTA 12.11.2.2): nobody serves the service ID.
constexpr int sidr_unsupported = 1;

sockaddr* raw(any_address& address) noexcept { return reinterpret_cast<sockaddr*>(&address.bytes); }

failure failure_of(const cm_event& event, const char* call, const socket_address& to) noexcept {
  const bool is_sidr_status = event.kind == RDMA_CM_EVENT_UNREACHABLE && event.status > 0;
  if (!is_sidr_status) return event_failure(event, call, to);
  if (event.status == sidr_unsupported) return call_failure(ECONNREFUSED, call, to);
  return {.code = errc::refused, .call = call, .detail = "the program there gives no address"};
}

}  // namespace

any_address::any_address(const socket_address& ip) noexcept {
  std::memcpy(&bytes, ip.data(), ip.size_bytes());
}

any_address::any_address(const ibv_gid& gid, std::uint16_t pkey) noexcept {
  sockaddr_ib in{};
  in.sib_family = AF_IB;
  in.sib_pkey = htons(pkey);
  std::memcpy(&in.sib_addr, gid.raw, sizeof gid.raw);
  std::memcpy(&bytes, &in, sizeof in);
}

datagram_id::datagram_id(event_channel& channel)
    : answer_{channel.executor()}, id_{channel.create_id(*this, RDMA_PS_UDP)} {}

datagram_id::~datagram_id() {
  // A failure means that the device is gone, and the group with it.
  if (joined_) static_cast<void>(rdma_leave_multicast(id_.get(), raw(*joined_)));
}

task<datagram_peer> datagram_id::resolve(socket_address to) {
  target_ = to;
  any_address address{to};
  call_ = "rdma_resolve_addr";
  if (rdma_resolve_addr(id_.get(), nullptr, raw(address), limit_ms) != 0)
    throw error{call_failure(errno, call_, to)};
  co_await answered();
  call_ = "rdma_resolve_route";
  if (rdma_resolve_route(id_.get(), limit_ms) != 0) throw error{call_failure(errno, call_, to)};
  co_await answered();
  call_ = "rdma_connect";
  rdma_conn_param request{};
  if (rdma_connect(id_.get(), &request) != 0) throw error{call_failure(errno, call_, to)};
  co_await answered();
  co_return told_;
}

task<datagram_peer> datagram_id::join(any_address own, any_address group, bool send_only) {
  call_ = "rdma_bind_addr";
  if (rdma_bind_addr(id_.get(), raw(own)) != 0) detail::throw_errno(errno, call_);
  call_ = "rdma_join_multicast";
  rdma_cm_join_mc_attr_ex wanted{};
  wanted.comp_mask = RDMA_CM_JOIN_MC_ATTR_ADDRESS | RDMA_CM_JOIN_MC_ATTR_JOIN_FLAGS;
  wanted.join_flags =
      send_only ? RDMA_MC_JOIN_FLAG_SENDONLY_FULLMEMBER : RDMA_MC_JOIN_FLAG_FULLMEMBER;
  wanted.addr = raw(group);
  if (rdma_join_multicast_ex(id_.get(), &wanted, nullptr) != 0) detail::throw_errno(errno, call_);
  joined_ = group;
  co_await answered();
  co_return told_;
}

std::string_view datagram_id::device_name() const noexcept {
  return id_->verbs != nullptr ? ibv_get_device_name(id_->verbs->device) : "";
}

task<> datagram_id::answered() {
  co_await answer_.wait();
  answer_.reset();
  if (why_ended_) throw error{*why_ended_};
}

void datagram_id::on_event(const cm_event& event) noexcept {
  switch (event.kind) {
    case RDMA_CM_EVENT_ADDR_RESOLVED:
    case RDMA_CM_EVENT_ROUTE_RESOLVED: break;
    case RDMA_CM_EVENT_ESTABLISHED:
    case RDMA_CM_EVENT_MULTICAST_JOIN: told_ = event.datagrams; break;
    case RDMA_CM_EVENT_ADDR_CHANGE: return;
    default: why_ended_ = failure_of(event, call_, target_);
  }
  answer_.set();
}

}  // namespace cordma::cm
