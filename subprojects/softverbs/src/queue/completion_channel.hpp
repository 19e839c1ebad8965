#pragma once

#include "queue/adaptive_mutex.hpp"
#include "queue/event_tokens.hpp"

#include <infiniband/verbs.h>

namespace softverbs {

struct completion_queue;

/// `handle` is what the program holds. Its fd polls as readable, and reads, like the real one. The
/// events wait in their completion queues, which are linked here in the order of their oldest one.
struct completion_channel {
  explicit completion_channel(ibv_context* ctx);  ///< throws std::system_error

  ibv_comp_channel handle{};  // First: pointers to it are cast back.
  event_tokens tokens;
  adaptive_mutex mutex;
  completion_queue* first = nullptr;
  completion_queue* last = nullptr;
};

/// Queues an event of this queue. Callable under the queue's mutex.
void notify(completion_channel& channel, completion_queue& cq) noexcept;
/// Blocks unless the fd is O_NONBLOCK. 0, or -1 with errno (EAGAIN, EINTR).
int take_event(completion_channel& channel, completion_queue*& cq) noexcept;
/// Drops the events of a queue that is going. Returns how many the program took.
std::uint32_t forget(completion_channel& channel, completion_queue& cq) noexcept;

}  // namespace softverbs
