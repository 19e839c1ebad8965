#include "abi/dispatch.hpp"
#include "object/soft_verbs.hpp"

// Completion events and asynchronous events.

namespace softverbs {

namespace {

/// Acknowledging is the same for all devices: the counters are in the public structures, and
/// whoever destroys the object waits for them.
template <class Object>
void acknowledge(Object& object, std::uint32_t Object::* counter, std::uint32_t count) noexcept {
  ::pthread_mutex_lock(&object.mutex);
  object.*counter += count;
  ::pthread_cond_signal(&object.cond);
  ::pthread_mutex_unlock(&object.mutex);
}

}  // namespace

}  // namespace softverbs

using namespace softverbs;

extern "C" {

int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  if (!is_soft(channel->context))
    return real::call<"ibv_get_cq_event">(ibv_get_cq_event, channel, cq, cq_context);
  if (const int error = entry::refused("ibv_get_cq_event", channel->context))
    return or_minus_one(error);
  return verb::get_cq_event(channel, cq, cq_context);
}

void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  acknowledge(*cq, &ibv_cq::comp_events_completed, count);
}

int ibv_get_async_event(ibv_context* ctx, ibv_async_event* event) {
  if (!is_soft(ctx)) return real::call<"ibv_get_async_event">(ibv_get_async_event, ctx, event);
  if (const int error = entry::refused("ibv_get_async_event", ctx)) return or_minus_one(error);
  return soft(ctx).async.pop(*event);
}

void ibv_ack_async_event(ibv_async_event* event) {
  switch (event->event_type) {
    case IBV_EVENT_CQ_ERR:
      return acknowledge(*event->element.cq, &ibv_cq::async_events_completed, 1);
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED:
      return acknowledge(*event->element.qp, &ibv_qp::events_completed, 1);
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED:
      return acknowledge(*event->element.srq, &ibv_srq::events_completed, 1);
    case IBV_EVENT_WQ_FATAL: return acknowledge(*event->element.wq, &ibv_wq::events_completed, 1);
    default: return;  // Of the port or the device: nobody waits.
  }
}

}  // extern "C"
