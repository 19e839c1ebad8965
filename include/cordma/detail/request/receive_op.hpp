#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/queue/receive_operation.hpp>

#include <array>
#include <cstddef>
#include <span>

namespace cordma {

/// A wait for the next message by a coroutine.
class CORDMA_EXPORT awaited_receive : public receive_operation {
 public:
  [[nodiscard]] scheduler* own_scheduler() const noexcept;

 protected:
  explicit awaited_receive(receive_queue& queue) noexcept : receive_operation{queue} {}
  /// `buffer`, which stays where it is, is posted first if it `posts`. True: it has ended.
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

/// `recv`, which posts a buffer of N slices, once the queue has room for it (a message that nobody
/// has taken yet takes up some), and `next_message`, which posts none. Gives the next message;
/// which buffer it is in, `message::slices` says. Messages come in the order the peer sent them. A
/// stop loses nothing: the message goes to the next who asks, a buffer that was posted stays so.
template <std::size_t N, bool Posts = true>
class [[nodiscard]] receive_op final : public operation_base<receive_op<N, Posts>>,
                                       private awaited_receive {
  static_assert(N <= receive_slices_max, "a receive buffer has at most receive_slices_max slices");

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
