#pragma once

#include "queue/event_tokens.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace softverbs {

/// The context's queue of asynchronous events, and its file descriptor, which is readable while
/// the queue has entries. Thread: any.
class async_event_queue {
 public:
  async_event_queue() = default;  ///< throws std::system_error without a file descriptor left

  [[nodiscard]] int fd() const noexcept { return tokens_.fd(); }
  void push(const ibv_async_event& event);
  /// Blocks unless the fd is O_NONBLOCK. 0, or -1 with errno (EAGAIN, EINTR).
  int pop(ibv_async_event& event);
  /// Drops the events about an object that is being destroyed. Returns how many were popped while
  /// it lived: the destroying verb waits until as many are acknowledged.
  std::uint32_t forget(const void* element) noexcept;

 private:
  event_tokens tokens_;
  std::mutex mutex_;
  std::deque<ibv_async_event> events_;
  /// Per object that had events: how many the program has popped. Entries are made by push().
  std::unordered_map<const void*, std::uint32_t> popped_;
};

}  // namespace softverbs
