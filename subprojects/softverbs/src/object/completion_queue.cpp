#include "queue/completion_queue.hpp"

#include "node/node.hpp"
#include "node/simulation.hpp"
#include "object/completion_queue_ex.hpp"
#include "object/context.hpp"
#include "object/counted.hpp"
#include "object/protection_domain.hpp"
#include "object/soft_verbs.hpp"
#include "queue/completion_channel.hpp"

#include <bit>
#include <cerrno>
#include <memory>
#include <new>

namespace softverbs {
namespace {

completion_queue& behind(ibv_cq* cq) noexcept { return *reinterpret_cast<completion_queue*>(cq); }

void count_channel_user(completion_channel& channel, int change) {
  const std::lock_guard lock{channel.mutex};
  channel.handle.refcnt += change;
}

int check(const ibv_context* ctx, std::uint32_t cqe, std::uint32_t vector,
          const ibv_comp_channel* channel) {
  if (cqe == 0 || cqe > static_cast<std::uint32_t>(limits().max_cqe)) return EINVAL;
  if (vector >= static_cast<std::uint32_t>(ctx->num_comp_vectors)) return EINVAL;
  return channel != nullptr && channel->context != ctx ? EINVAL : 0;
}

/// Waits until the program has acknowledged the events that it read: ibv_get_cq_event(3).
void await_acknowledgements(ibv_cq_ex& handle, std::uint32_t completions, std::uint32_t events) {
  ::pthread_mutex_lock(&handle.mutex);
  while (handle.comp_events_completed != completions || handle.async_events_completed != events)
    ::pthread_cond_wait(&handle.cond, &handle.mutex);
  ::pthread_mutex_unlock(&handle.mutex);
  ::pthread_cond_destroy(&handle.cond);
  ::pthread_mutex_destroy(&handle.mutex);
}

}  // namespace

void raise_cq_error(completion_queue& cq) noexcept {
  ibv_async_event event{};
  event.event_type = IBV_EVENT_CQ_ERR;
  event.element.cq = reinterpret_cast<ibv_cq*>(&cq.handle);
  try {
    cq.owner->async.push(event);
  } catch (const std::bad_alloc&) {
    // Without memory the event is lost; the states of the queue pairs still show the error.
  }
}

completion_queue* make_completion_queue(ibv_context* ctx, std::uint32_t cqe, void* cq_context,
                                        ibv_comp_channel* channel, std::uint32_t vector,
                                        bool timestamps, ibv_pd* domain) {
  if (const int error = check(ctx, cqe, vector, channel)) {
    errno = error;
    return nullptr;
  }
  auto cq = std::make_unique<completion_queue>();
  cq->memory = memory_of(domain);
  resize(*cq, static_cast<int>(cqe));
  if (timestamps) cq->timestamps.resize(cq->ring.size());
  if (!counts_of(ctx).queues.add(limits().max_cq)) {
    errno = ENOMEM;
    return nullptr;
  }
  cq->owner = &softverbs::soft(ctx);
  cq->channel = reinterpret_cast<completion_channel*>(channel);
  cq->domain = domain;
  if (domain != nullptr) softverbs::soft(domain).users.fetch_add(1);
  cq->handle.context = ctx;
  cq->handle.channel = channel;
  cq->handle.cq_context = cq_context;
  ::pthread_mutex_init(&cq->handle.mutex, nullptr);
  ::pthread_cond_init(&cq->handle.cond, nullptr);
  if (cq->channel != nullptr) count_channel_user(*cq->channel, 1);
  return cq.release();
}

namespace verb {

ibv_cq* create_cq(ibv_context* ctx, int cqe, void* cq_context, ibv_comp_channel* channel,
                  int vector) {
  completion_queue* cq =
      make_completion_queue(ctx, static_cast<std::uint32_t>(std::max(cqe, 0)), cq_context, channel,
                            static_cast<std::uint32_t>(vector));
  return cq == nullptr ? nullptr : reinterpret_cast<ibv_cq*>(&cq->handle);
}

int resize_cq(ibv_cq* handle, int cqe) {
  if (!limits().resize_cq) return EOPNOTSUPP;
  if (cqe <= 0 || cqe > limits().max_cqe) return EINVAL;
  return resize(behind(handle), cqe) ? 0 : EINVAL;
}

int destroy_cq(ibv_cq* handle) {
  completion_queue& cq = behind(handle);
  if (cq.users.load() != 0) return EBUSY;
  const std::uint32_t taken = cq.channel == nullptr ? 0 : forget(*cq.channel, cq);
  await_acknowledgements(cq.handle, taken, cq.owner->async.forget(handle));
  if (cq.channel != nullptr) count_channel_user(*cq.channel, -1);
  ibv_pd* const domain = cq.domain;
  object_counts& counts = cq.owner->local_node->counts();
  delete &cq;
  if (domain != nullptr) softverbs::soft(domain).users.fetch_sub(1);
  counts.queues.remove();
  return 0;
}

int poll_cq(ibv_cq* handle, int cqes_max, ibv_wc* completions) {
  completion_queue& cq = behind(handle);
  if (const int taken = take(cq, cqes_max, completions)) return taken;
  cq.owner->local_node->on_empty_poll(cq);
  return take(cq, cqes_max, completions);
}

int req_notify_cq(ibv_cq* handle, int solicited_only) {
  completion_queue& cq = behind(handle);
  if (cq.channel == nullptr) return EINVAL;  // Without a channel, no event can be raised.
  const armed how = solicited_only != 0 ? armed::solicited : armed::any;
  const simulated_host* const host = simulated_host::current();
  if (host != nullptr && host->arms_for_later())
    arm_for_later(cq, how);
  else
    arm(cq, how);
  cq.owner->local_node->on_arm(cq);
  return 0;
}

}  // namespace verb
}  // namespace softverbs
