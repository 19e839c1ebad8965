#pragma once

#include <cordma/coro/event.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/coro/task.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/messages/message_content.hpp>
#include <cordma/memory/slice.hpp>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace cordma::detail {

class stream_channel;
struct large_receive;

/// A message, as it is known before the program takes it.
struct message_arrival {
  std::size_t size_bytes = 0;
  std::optional<std::uint32_t> immediate{};
  bool is_large = false;  ///< goes by rendezvous
};

/// A task's wait for a stream's next message, which goes where the task says once it is known.
/// Dropping the wait leaves the message to the next task.
///
/// States, as the members say them:
///   waiting   in the list of the semaphore `messages`, and in the channel's list.
///   served    by the semaphore: the message is here, or the connection has ended.
///   offered   by `fetch_next`: the message is `large_`, which nobody has fetched. The wait stays
///   in
///             the semaphore's list, and goes on if the peer withdraws the message.
///   reading   by `choose`: READs bring the message into `part_`, until `on_read` or `on_failed`.
///   over      by `take`, or by the destructor.
class CORDMA_EXPORT pending_fill : public list_hook<pending_fill>, private waiter {
 public:
  pending_fill(counted_ref<stream_channel> channel, stop_token stop) noexcept;
  pending_fill(pending_fill&&) = delete;
  ~pending_fill();

  /// Ends when something has changed since this call.
  [[nodiscard]] event::wait_op changed() noexcept {
    changed_.reset();
    return changed_.wait();
  }
  /// True if there is a `next`. \errors `cancelled`; why the connection ended.
  [[nodiscard]] bool is_known();
  [[nodiscard]] message_arrival next() noexcept;
  /// Takes the task's answer to `next`. A large message is read there from now on.
  /// \errors as `part_to_fill`; what borrowing throws.
  void choose(const local_mr_slice& chosen);
  [[nodiscard]] bool is_reading() const noexcept { return is_reading_; }
  /// Takes the message, whose bytes are in the chosen memory then. False: the peer has withdrawn
  /// the message, so there may be another. \errors `cancelled`; why the READ failed; EFAULT.
  [[nodiscard]] bool take();

 private:
  friend class message_channel;
  friend class stream_channel;
  static std::coroutine_handle<> on_served(waiter& self) noexcept;
  void take_whole();
  void take_large() noexcept;
  // The channel calls the following functions, mostly in the middle of a reap.
  void offer(large_receive& l) noexcept;
  void lose() noexcept;
  void on_read() noexcept;
  void on_failed(const failure& why) noexcept;

  counted_ref<stream_channel> channel_;
  const stop_token stop_;
  event changed_;
  std::optional<semaphore::acquire_op> permit_;
  bool is_served_ = false;
  bool is_reading_ = false;
  bool is_whole_ = false;  ///< `next` was a message that is here
  large_receive* large_ = nullptr;
  message_arrival next_;
  local_mr_slice part_;
  std::optional<failure> failure_;
};

/// The body of `message_stream::receive_into`.
template <class Where>
task<message_arrival> receive_into(counted_ref<stream_channel> channel, Where where) {
  const environment env = co_await current_environment();
  if (env.stop.stop_requested()) throw cancelled{};
  pending_fill fill{std::move(channel), env.stop};
  for (;;) {
    while (!fill.is_known()) co_await fill.changed();
    const message_arrival next = fill.next();
    fill.choose(where(next));
    while (fill.is_reading()) co_await fill.changed();
    if (fill.take()) co_return next;
  }
}

}  // namespace cordma::detail
