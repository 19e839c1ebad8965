#pragma once

#include <cordma/base/result.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/base/intrusive_list.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/queue/message.hpp>

#include <span>

namespace cordma {

class receive_queue;

/// A wait for the next message, which may post a buffer first. The queue notifies it at its end.
///
/// An operation is `idle` until it begins. It is in `wants_room` while its buffer waits for room,
/// and then `waits` for a message. It is `promised` a message that nobody else takes, and ends as
/// `taken`, `stopped` or `failed`. `receive_queue` makes every change except those of a stop. The
/// owner may take a message late, so the queue counts its promises.
/// \thread the executor's.
class CORDMA_EXPORT receive_operation : public list_hook<receive_operation> {
 public:
  /// Returns true if `take` would throw. Call it once the operation has ended.
  [[nodiscard]] bool failed() const noexcept {
    return state_ == state::stopped || state_ == state::failed;
  }
  /// Takes the message. Call it at most once, after the operation has ended.
  message take();
  /// Takes it to `into`, which saves a copy of a datagram.
  void take(message& into);
  result<message> take_result() noexcept;

 protected:
  explicit receive_operation(receive_queue& queue) noexcept : queue_{&queue} {}
  /// Moves an operation that is idle.
  receive_operation(receive_operation&& other) noexcept : queue_{other.queue_} {}
  virtual ~receive_operation() {
    if (state_ >= state::wants_room) [[unlikely]]
      leave();
  }

  /// Waits for a message, and first posts `buffer` if `posts`; `buffer` stays where it is. Returns
  /// true if the operation has ended without a notification.
  bool begin(bool posts, std::span<const local_mr_slice> buffer) noexcept;
  /// Stops waiting. The message goes to the next operation; a posted buffer stays posted.
  void stop() noexcept;
  /// Returns the queue, which outlives the operation.
  [[nodiscard]] receive_queue& queue() const noexcept { return *queue_; }

 private:
  friend class receive_queue;
  /// States from `wants_room` on mean that the operation is in a list of the queue.
  enum class state : unsigned char { idle, taken, stopped, failed, wants_room, waits, promised };

  /// Notifies: a message is promised, or the operation has failed.
  virtual void on_end() noexcept = 0;
  /// Leaves the queue before anybody took the promised message.
  void leave() noexcept;
  void fail(const request_outcome& how) noexcept;

  receive_queue* queue_;
  std::span<const local_mr_slice> buffer_;
  state state_ = state::idle;
  union {
    request_failure failure_;  // Valid if the operation has failed.
  };
};

}  // namespace cordma
