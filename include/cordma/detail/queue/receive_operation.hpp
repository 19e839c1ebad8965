#pragma once

#include <cordma/base/result.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/queue/message.hpp>

#include <span>

namespace cordma {

class receive_queue;

/// A wait for the next message, which may post a buffer first, and whom the queue tells of its end.
///
/// States: `idle` until it begins; `wants_room` while its buffer waits for room; `waits` for a
/// message; `promised` one, which nobody else takes; `taken`, `stopped` or `failed` at its end.
/// `receive_queue` makes every change but those of a stop. Told of a message, the owner may be slow
/// to take it, so the queue counts what it has promised.
/// \thread the executor's.
class CORDMA_EXPORT receive_operation : public list_hook<receive_operation> {
 public:
  /// Once it has ended: whether `take` would throw.
  [[nodiscard]] bool failed() const noexcept {
    return state_ == state::stopped || state_ == state::failed;
  }
  /// Once it has ended, and at most once.
  message take();
  result<message> take_result() noexcept;

 protected:
  explicit receive_operation(receive_queue& queue) noexcept : queue_{&queue} {}
  /// While it is idle.
  receive_operation(receive_operation&& other) noexcept : queue_{other.queue_} {}
  ~receive_operation() {
    if (state_ >= state::wants_room) [[unlikely]]
      leave();
  }

  /// Posts `buffer`, which stays where it is, if it `posts`, and waits for a message. True: the
  /// operation has ended, and nobody is told.
  bool begin(bool posts, std::span<const local_mr_slice> buffer) noexcept;
  /// It waits no longer. The message goes to the next, a buffer that was posted stays so.
  void stop() noexcept;
  /// The queue outlives it.
  [[nodiscard]] receive_queue& queue() const noexcept { return *queue_; }

 private:
  friend class receive_queue;
  /// From `wants_room` on it is in a list of the queue's.
  enum class state : unsigned char { idle, taken, stopped, failed, wants_room, waits, promised };

  /// A message is promised, or it has failed.
  virtual void on_end() noexcept = 0;
  /// It goes before anybody took what it waits for.
  void leave() noexcept;
  void fail(const request_outcome& how) noexcept;

  receive_queue* queue_;
  std::span<const local_mr_slice> buffer_;
  state state_ = state::idle;
  union {
    request_failure failure_;  // If it has failed.
  };
};

}  // namespace cordma
