#include "device.hpp"

#include "failures.hpp"

#include <cerrno>

namespace cordma::verbs {
namespace {

/// Copies the union member that is valid for the kind; ibv_get_async_event(3) has the table.
async_event copy_of(const ibv_async_event& raw) noexcept {
  async_event event{.kind = raw.event_type};
  switch (raw.event_type) {
    case IBV_EVENT_CQ_ERR: event.cq = raw.element.cq; break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR: event.qp = raw.element.qp; break;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: event.srq = raw.element.srq; break;
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE: event.port = raw.element.port_num; break;
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_WQ_FATAL: break;
  }
  return event;
}

}  // namespace

const char* to_string(ibv_event_type kind) noexcept { return ibv_event_type_str(kind); }

std::optional<async_event> next_async_event(context& ctx) {
  ibv_async_event raw{};
  // EINTR must not look like "empty": an edge-triggered waiter would never come back for the event.
  while (ibv_get_async_event(ctx.native_handle(), &raw) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return std::nullopt;
    detail::throw_errno(errno, "ibv_get_async_event", ctx.name());
  }
  const async_event event = copy_of(raw);
  ibv_ack_async_event(&raw);
  return event;
}

}  // namespace cordma::verbs
