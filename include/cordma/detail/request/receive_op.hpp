#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/queue/receive_operation.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace cordma {

/// A coroutine's wait for the next message.
class CORDMA_EXPORT awaited_receive : public receive_operation {
 public:
  [[nodiscard]] scheduler* own_scheduler() const noexcept;

 protected:
  explicit awaited_receive(receive_queue& queue) noexcept : receive_operation{queue} {}
  /// Waits; if `posts`, first posts `buffer`, which stays where it is. Returns true if the
  /// operation has ended.
  bool start(waiter& w, const environment& env, bool posts,
             std::span<const local_mr_slice> buffer) noexcept;

 private:
  struct wait_state : suspension {
    explicit wait_state(awaited_receive& o) noexcept : suspension{&on_stop}, owner{o} {}
    awaited_receive& owner;
  };

  static void on_stop(stop_callback& self) noexcept;
  void on_end() noexcept final { wait_.end(); }

  wait_state wait_{*this};
};

/// Waits for the next message. `recv` posts a buffer of N slices first, once the queue has room; an
/// untaken message takes up room. `next_message` posts none.
///
/// Messages come in the order in which the peer sent them; `message::slices` names the buffer. A
/// stop loses nothing: the message goes to the next operation, and a posted buffer stays posted.
template <std::size_t N, bool Posts = true>
class [[nodiscard]] receive_op final : public operation_base<receive_op<N, Posts>>,
                                       private awaited_receive {
  static_assert(N <= buffer_slices::size_max,
                "a receive buffer has at most buffer_slices::size_max slices");

 public:
  using value_type = message;

  receive_op(receive_queue& queue, const std::array<local_mr_slice, N>& buffer) noexcept
      : awaited_receive{queue}, buffer_{buffer} {}
  receive_op(receive_op&& other) noexcept
      : awaited_receive{other.queue()}, buffer_{other.buffer_} {}
  bool start(waiter& w, const environment& env) noexcept {
    return awaited_receive::start(w, env, Posts, buffer_);
  }
  using awaited_receive::failed;
  using awaited_receive::own_scheduler;
  using awaited_receive::take;
  using awaited_receive::take_result;

 private:
  std::array<local_mr_slice, N> buffer_;
};
using next_message_op = receive_op<0, false>;

}  // namespace cordma
