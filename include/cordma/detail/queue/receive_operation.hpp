#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/queue/send_operation.hpp>
#include <cordma/queue/message.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace cordma {

class receive_queue;

/// A wait for the next message, which may post a buffer first.
///
/// States: `idle` until it starts; `wants_room` while its buffer waits for room; `waits` for a
/// message; `promised` one, which nobody else takes; `taken`, `stopped` or `failed` at its end.
/// `receive_queue` makes every change but those of a stop. Told of a message, the awaiter may be
/// slow to take it, so the queue counts what it has promised. Thread: the executor's.
class receive_operation {
 public:
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  [[nodiscard]] bool failed() const noexcept {
    return state_ == state::stopped || state_ == state::failed;
  }
  message take();
  result<message> take_result() noexcept;

 protected:
  explicit receive_operation(receive_queue& queue) noexcept : queue_{&queue} {}
  receive_operation(receive_operation&& other) noexcept : queue_{other.queue_} {}  // While idle.
  ~receive_operation() {
    if (state_ >= state::wants_room) [[unlikely]]
      leave();
  }

  /// `buffer`, which stays where it is, is posted first if it `posts`. True: it has ended.
  bool start(waiter& w, const environment& env, bool posts,
             std::span<const local_mr_slice> buffer) noexcept;

 private:
  friend class receive_queue;
  /// From `wants_room` on it is in a list of the queue's.
  enum class state : unsigned char { idle, taken, stopped, failed, wants_room, waits, promised };
  struct place : list_hook<place>, suspension {
    place(receive_operation& o, std::span<const local_mr_slice> posts) noexcept
        : suspension{&on_stop}, owner{o}, buffer{posts} {}
    receive_operation& owner;
    const std::span<const local_mr_slice> buffer;
  };

  static void on_stop(stop_callback& self) noexcept;
  /// The coroutine is destroyed before it took what it waits for.
  void leave() noexcept;
  bool stopped() noexcept;
  void fail(const request_outcome& how) noexcept;

  receive_queue* queue_;
  state state_ = state::idle;
  union {
    place place_;  // From `wants_room` on.
  };
  union {
    request_failure failure_;  // If it has failed.
  };
};

/// `recv`, which posts a buffer of N slices, once the queue has room for it (a message that nobody
/// has taken yet takes up some), and `next_message`, which posts none. Gives the next message;
/// which buffer it is in, `message::slices` says. Messages come in the order the peer sent them. A
/// stop loses nothing: the message goes to the next who asks, a buffer that was posted stays so.
template <std::size_t N, bool Posts = true>
class [[nodiscard]] receive_op final : public operation_base<receive_op<N, Posts>>,
                                       private receive_operation {
  static_assert(N <= receive_slices_max, "a receive buffer has at most receive_slices_max slices");

 public:
  using value_type = message;

  receive_op(receive_queue& queue, const std::array<local_mr_slice, N>& buffer) noexcept
      : receive_operation{queue}, buffer_{buffer} {}
  bool start(waiter& w, const environment& env) noexcept {
    return receive_operation::start(w, env, Posts, buffer_);
  }
  using receive_operation::failed;
  using receive_operation::own_scheduler;
  using receive_operation::take;
  using receive_operation::take_result;

 private:
  std::array<local_mr_slice, N> buffer_;
};
using next_message_op = receive_op<0, false>;

}  // namespace cordma
