#include "abi/dispatch.hpp"
#include "object/soft_verbs.hpp"
#include "queue/event_subject.hpp"

#include <type_traits>

// Completion events and asynchronous events.

namespace softverbs {

namespace {

/// Acknowledges events, alike for all devices: the counters are in the public structures, and the
/// verb that destroys the object waits for them.
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
  visit_subject(*event, [](auto subject) {
    if constexpr (std::is_same_v<decltype(subject), ibv_cq*>)
      acknowledge(*subject, &ibv_cq::async_events_completed, 1);
    else if constexpr (!std::is_null_pointer_v<decltype(subject)>)  // Events of the port and the
                                                                    // device have no counter.
      acknowledge(*subject, &std::remove_pointer_t<decltype(subject)>::events_completed, 1);
  });
}

}  // extern "C"
