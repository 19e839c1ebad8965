#pragma once

#include "queue/event_tokens.hpp"

#include <infiniband/verbs.h>

#include <cstdint>
#include <deque>
#include <mutex>
#include <unordered_map>

namespace softverbs {

/// The context's queue of asynchronous events, and its file descriptor, which is readable while
/// the queue has entries. \thread any.
class async_event_queue {
 public:
  async_event_queue() = default;  ///< throws std::system_error without a file descriptor left

  [[nodiscard]] int fd() const noexcept { return tokens_.fd(); }
  [[nodiscard]] event_tokens& tokens() noexcept { return tokens_; }
  void push(const ibv_async_event& event);
  /// Takes the oldest event; blocks unless the fd is O_NONBLOCK. 0, or -1 with errno (EAGAIN,
  /// EINTR).
  int pop(ibv_async_event& event);
  /// Drops the events of an object that is being destroyed. Returns the number of its popped
  /// events: the destroying verb waits until the program has acknowledged them.
  std::uint32_t forget(const void* element) noexcept;

 private:
  event_tokens tokens_;
  std::mutex mutex_;
  std::deque<ibv_async_event> events_;
  /// The number of popped events of each object that had an event; push() makes the entries.
  std::unordered_map<const void*, std::uint32_t> popped_;
};

}  // namespace softverbs
