#include "runtime/async_events.hpp"

#include "base/caught.hpp"
#include "base/failures.hpp"
#include "queue/callback_queue_pair.hpp"
#include "verbs/device.hpp"

namespace cordma {
namespace {

request_outcome reason(errc code, const verbs::async_event& event) noexcept {
  return {.code = code, .call = verbs::to_string(event.kind)};
}

}  // namespace

async_events::async_events(cordma::executor& executor, verbs::context& ctx,
                           const detail::logger* log)
    : fd_watch{executor, ctx.async_fd(), fd_events::readable, &on_ready}, ctx_{ctx}, log_{log} {}

void async_events::on_ready(fd_watch& watch) noexcept {
  async_events& events = static_cast<async_events&>(watch);
  events.drain();
  if (!watch.is_watching()) {
    events.fail_all({.code = errc::device_failed, .call = "poll device events"});
  }
}

/// Reads all events: the descriptor's readiness is edge-triggered.
void async_events::drain() noexcept {
  try {
    while (const std::optional<verbs::async_event> event = verbs::next_async_event(ctx_)) {
      ++seen_;
      route(*event);
      if (!kept_.try_send(verbs::async_event{*event})) ++dropped_;
    }
  } catch (...) {
    fail_all({.code = caught("ibv_get_async_event").code, .call = "ibv_get_async_event"});
  }
}

void async_events::route(const verbs::async_event& event) noexcept {
  switch (event.kind) {
    case IBV_EVENT_CQ_ERR:
      log(event_log::kind::device_failed, reason(errc::cq_overrun, event));
      for (completion_queue_driver* driver : drivers_) {
        if (driver->is(event.cq)) driver->fail(reason(errc::cq_overrun, event));
      }
      break;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      for (completion_queue_driver* driver : drivers_) {
        if (callback_queue_pair* const qp = driver->find(event.qp)) {
          driver->reap_all();  // Requests that ended by themselves keep their own outcome.
          const request_outcome why = reason(errc::disconnected, event);
          event.kind == IBV_EVENT_QP_LAST_WQE_REACHED ? qp->last_receive_taken(why)
                                                      : qp->abort(why);
        }
      }
      break;
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      for (shared_receives* pool : pools_) {
        if (event.srq != pool->verbs().native_handle()) continue;
        pool->limit_reached();
        break;  // The program, which runs in this call, may have made another pool.
      }
      break;
    case IBV_EVENT_PORT_ERR:
      log(event_log::kind::port_down, reason(errc::device_failed, event), event.port);
      for (completion_queue_driver* driver : drivers_) {
        driver->fail(reason(errc::device_failed, event), event.port);
      }
      break;
    case IBV_EVENT_DEVICE_FATAL: fail_all(reason(errc::device_failed, event)); break;
    case IBV_EVENT_PORT_ACTIVE: log(event_log::kind::port_up, reason({}, event), event.port); break;
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_GID_CHANGE:
      log(event_log::kind::fabric_changed, reason({}, event), event.port);
      break;
    default: break;  // Informational (COMM_EST, SQ_DRAINED, …); nothing to end.
  }
}

void async_events::fail_all(const request_outcome& why) noexcept {
  log(event_log::kind::device_failed, why);
  for (completion_queue_driver* driver : drivers_) driver->fail(why);
}

/// Logs an event of the device or a port, with its name.
void async_events::log(event_log::kind event, const request_outcome& why, int port) const noexcept {
  if (log_ == nullptr || !log_->wants(event)) return;
  const std::string_view device = ctx_.name();
  const fixed_text<240> note =
      port == 0
          ? detail::detail_text("%s, device %.*s", why.call, int(device.size()), device.data())
          : detail::detail_text("%s, device %.*s, port %d", why.call, int(device.size()),
                                device.data(), port);
  log_->write(event, {.note = note.view()});
}

}  // namespace cordma
