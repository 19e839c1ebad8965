#pragma once

#include "queue/adaptive_mutex.hpp"
#include "queue/event_tokens.hpp"

#include <infiniband/verbs.h>

namespace softverbs {

struct completion_queue;

/// A completion channel; the program holds `handle`. The fd polls and reads like that of a real
/// channel. The completion queues count their events; the channel lists the queues, oldest event
/// first.
struct completion_channel {
  explicit completion_channel(ibv_context* ctx);  ///< throws std::system_error

  ibv_comp_channel handle{};  // First: pointers to it are cast back.
  event_tokens tokens;
  adaptive_mutex mutex;
  completion_queue* first = nullptr;
  completion_queue* last = nullptr;
};

/// Queues an event of this queue. Callable under the mutex of the queue.
void notify(completion_channel& channel, completion_queue& cq) noexcept;
/// Takes the oldest event; blocks unless the fd is O_NONBLOCK. 0, or -1 with errno (EAGAIN, EINTR).
/// A cancellation point.
int take_event(completion_channel& channel, completion_queue*& cq);
/// Drops the events of a queue before it is destroyed. Returns the number of events that the
/// program took.
std::uint32_t forget(completion_channel& channel, completion_queue& cq) noexcept;

}  // namespace softverbs
