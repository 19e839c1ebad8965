#include "queue/completion_channel.hpp"

#include "queue/completion_queue.hpp"

namespace softverbs {
namespace {

void append(completion_channel& channel, completion_queue& cq) noexcept {
  cq.next_with_events = nullptr;
  (channel.last == nullptr ? channel.first : channel.last->next_with_events) = &cq;
  channel.last = &cq;
}

void unlink(completion_channel& channel, completion_queue& cq) noexcept {
  completion_queue* before = nullptr;
  for (auto* at = channel.first; at != &cq; at = at->next_with_events) before = at;
  (before == nullptr ? channel.first : before->next_with_events) = cq.next_with_events;
  if (channel.last == &cq) channel.last = before;
}

}  // namespace

completion_channel::completion_channel(ibv_context* ctx) {
  handle.context = ctx;
  handle.fd = tokens.fd();
}

void notify(completion_channel& channel, completion_queue& cq) noexcept {
  const std::lock_guard lock{channel.mutex};
  if (cq.events_queued++ == 0) append(channel, cq);
  channel.tokens.put();
}

int take_event(completion_channel& channel, completion_queue*& cq) {
  for (;;) {
    if (!channel.tokens.take()) return -1;
    const std::lock_guard lock{channel.mutex};
    if (!channel.tokens.spend()) continue;  // The queue of the event was destroyed meanwhile.
    cq = channel.first;
    unlink(channel, *cq);
    if (--cq->events_queued != 0) append(channel, *cq);
    ++cq->events_taken;
    return 0;
  }
}

std::uint32_t forget(completion_channel& channel, completion_queue& cq) noexcept {
  const std::lock_guard lock{channel.mutex};
  if (cq.events_queued != 0) unlink(channel, cq);
  for (; cq.events_queued != 0; --cq.events_queued) channel.tokens.withdraw();
  return cq.events_taken;
}

}  // namespace softverbs
