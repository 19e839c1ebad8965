#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/transfer/receive_queue.hpp>
#include <cordma/detail/transfer/send_operation.hpp>
#include <cordma/transfer/message.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <system_error>

namespace cordma {

/// Of somebody who waits for a message, or for room for a buffer first.
struct receive_queue::place : list_hook<place>, suspension {
  place(taker& whose, std::span<const local_mr_slice> posts) noexcept;
  taker& owner;
  const std::span<const local_mr_slice> buffer;
};

/// Who wants a message. Told of one, it may be slow to take it: the queue knows what it has
/// promised.
class receive_queue::taker {
 protected:
  explicit taker(receive_queue& queue) noexcept : queue_{&queue} {}
  taker(taker&& other) noexcept : queue_{other.queue_} {}  // Only before it starts.
  ~taker() {
    if (state_ >= state::wants_room) [[unlikely]]
      leave();
  }

  /// The first half of an operation's `start`. Whether it has ended, as it has when a message is
  /// there: for who takes that at once.
  template <std::size_t N>
  bool post(bool posts, std::span<const local_mr_slice, N> buffer, const environment& env) noexcept;
  /// For who does not take its message at once: it is promised. True.
  bool keeps() noexcept;
  /// The second half. The buffer stays where it is: it may wait for room.
  bool wait(waiter& w, std::span<const local_mr_slice> buffer, const environment& env) noexcept;
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  [[nodiscard]] bool failed() const noexcept {
    return state_ == state::stopped || state_ == state::failed;
  }
  [[gnu::always_inline]] message take() {
    if (state_ != state::granted) [[unlikely]]
      claim();
    return queue_->take();
  }
  result<message> take_result() noexcept;

 private:
  friend class receive_queue;
  /// From `wants_room` on it has, or is about to have, a place in the queue.
  enum class state : unsigned char {
    idle,
    granted,
    stopped,
    failed,
    wants_room,
    waits,
    promised,
  };

  static void on_stop(stop_callback& self) noexcept;
  /// It has not ended, or not been taken.
  [[gnu::noinline]] void leave() noexcept;
  [[gnu::cold]] bool stopped() noexcept;
  /// It was promised one, which it takes now. Throws why not.
  [[gnu::noinline]] void claim();
  [[nodiscard]] bool takes_message() noexcept {
    if (!queue_->has_message()) return false;
    --queue_->free_count_;
    state_ = state::granted;
    return true;
  }
  void fail(const request_outcome& how) noexcept;

  receive_queue* queue_;
  state state_ = state::idle;
  // Made when they are needed: a message is mostly there.
  union {
    place place_;
  };
  union {
    request_failure failure_;
  };
};

/// `recv`, which posts a buffer of N slices, once the queue has room for it (a message that nobody
/// has taken yet takes up some), and `next_message`, which posts none. Gives the next message;
/// which buffer it is in, `message::slices` says. Messages come in the order the peer sent them. A
/// stop loses nothing: the message goes to the next who asks, a buffer that was posted stays so.
template <std::size_t N, bool Posts = true>
class [[nodiscard]] receive_op final : public operation_base<receive_op<N, Posts>>,
                                       private receive_queue::taker {
 public:
  using value_type = message;

  receive_op(receive_queue& queue, const std::array<local_mr_slice, N>& buffer) noexcept
      : taker{queue}, buffer_{buffer} {
    static_assert(N <= receive_slices_max,
                  "a receive buffer has at most receive_slices_max slices");
  }
  bool start(waiter& w, const environment& env) noexcept {
    const std::span<const local_mr_slice, N> buffer{buffer_};
    return taker::post(Posts, buffer, env) ? taker::keeps() : taker::wait(w, buffer, env);
  }
  using taker::failed;
  using taker::own_scheduler;
  using taker::take;
  using taker::take_result;

 private:
  std::array<local_mr_slice, N> buffer_;
};
using next_message_op = receive_op<0, false>;

inline receive_queue::place::place(taker& whose, std::span<const local_mr_slice> posts) noexcept
    : suspension{&taker::on_stop}, owner{whose}, buffer{posts} {}

inline void receive_queue::promise(taker& to) noexcept {
  to.state_ = taker::state::promised;
  --free_count_;
}

inline bool receive_queue::serve(taker& t) noexcept {
  if (has_message()) {
    promise(t);
    takers_.push_back(t.place_);
    return true;
  }
  if (closed_) [[unlikely]] {
    t.fail(*closed_);
    return true;
  }
  t.state_ = taker::state::waits;
  takers_.push_back(t.place_);
  if (first_waiting_ == nullptr) first_waiting_ = &t.place_;
  return false;
}

template <std::size_t N>
[[gnu::always_inline]] inline bool receive_queue::taker::post(
    bool posts, std::span<const local_mr_slice, N> buffer, const environment& env) noexcept {
  // Who is stopped before it begins posts nothing.
  if (env.stop.stop_requested()) [[unlikely]]
    return stopped();
  // What came before a failure can still be taken; nothing more will come.
  if (posts && !queue_->closed_) {
    if (!queue_->has_room()) [[unlikely]] {
      state_ = state::wants_room;
      return false;
    }
    if (const reason why = queue_->try_post(buffer)) [[unlikely]] {
      fail(queue_->refusal(why, buffer.size()));
      return true;
    }
  }
  return takes_message();  // Of a queue that is closed `wait` tells.
}

inline bool receive_queue::taker::keeps() noexcept {
  if (state_ != state::granted) return true;
  std::construct_at(&place_, *this, std::span<const local_mr_slice>{});
  state_ = state::promised;
  queue_->takers_.push_back(place_);  // Nobody waits, or it would have that message.
  return true;
}

}  // namespace cordma
