#pragma once

#include <cordma/coro/semaphore.hpp>

#include <type_traits>
#include <vector>

namespace cordma {

/// A bounded FIFO between coroutines of one thread: senders wait while it is full, receivers while
/// it is empty. A stopped or abandoned receive loses no item. `T` is default-constructible and
/// moves without throwing. The channel outlives its operations.
template <class T>
class channel {
  static_assert(std::is_nothrow_move_constructible_v<T> && std::is_nothrow_move_assignable_v<T>);

 public:
  class send_op;
  class receive_op;

  explicit channel(std::size_t capacity) : ring_(capacity), items_{0} {
    CORDMA_ASSERT(capacity > 0, "a channel holds at least one item");
  }
  ~channel() { CORDMA_ASSERT(senders_.empty(), "channel destroyed while awaited"); }

  /// Sends `item`. The item is sent when the operation ends without an error, even if nobody takes
  /// the outcome. Two peers may thus each send and receive in one `when_all`.
  /// \errors `errc::closed` once the channel is closed; `cancelled` when a stop came first.
  send_op send(T item) { return send_op{*this, std::move(item)}; }
  /// Gives the next item, or nothing once the channel is closed and empty. The item stays in the
  /// channel until the outcome is taken: a receive that loses in `when_any` takes none.
  receive_op receive() noexcept { return receive_op{*this}; }
  /// Sends `item` without waiting. Returns false, and leaves `item` untouched, if the channel is
  /// full or closed.
  [[nodiscard]] bool try_send(T&& item) {
    if (closed_ || size() == capacity()) return false;
    push(std::move(item));
    return true;
  }
  [[nodiscard]] std::optional<T> try_receive() {
    if (!items_.try_acquire()) return std::nullopt;
    return pop();
  }
  /// Closes the channel: receivers get what is there, then nothing; senders fail, also those that
  /// wait.
  void close() noexcept {
    closed_ = true;
    intrusive_list<send_op> refused;
    refused.splice_back(senders_);
    items_.close(send_op::refusal());
    while (!refused.empty()) refused.pop_front().end(send_op::state::closed);
  }
  [[nodiscard]] std::size_t size() const noexcept { return tail_ - head_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return ring_.size(); }

 private:
  // Resuming a receiver must be the last step: without a scheduler it may destroy the channel.
  void push(T&& item) noexcept {
    ring_[tail_++ % ring_.size()] = std::move(item);
    items_.release();
  }
  T pop() noexcept {
    T item = std::move(ring_[head_++ % ring_.size()]);
    // The list is on the stack, because `push` may destroy the channel.
    intrusive_list<send_op> sent;
    if (!senders_.empty()) {
      send_op& next = senders_.pop_front();
      next.state_ = send_op::state::sent;
      next.stop_callback::unlink();
      sent.push_back(next);
      push(std::move(next.item_));
    }
    if (!sent.empty()) sent.pop_front().end(send_op::state::sent);
    return item;
  }

  std::vector<T> ring_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
  bool closed_ = false;
  intrusive_list<send_op> senders_;  // Empty unless the ring is full.
  semaphore items_;                  // Counts items that no receiver was promised.
};

/// A wait for room for an item.
///
/// An operation is `waiting` until it ends, in the channel's list once it has started. `start`
/// makes it `sent` if there is room, and else the `pop` that makes room. A stop makes it `stopped`,
/// and `close` makes it `closed`.
template <class T>
class [[nodiscard]] channel<T>::send_op : public operation_base<send_op>,
                                          public list_hook<send_op>,
                                          private suspension {
 public:
  using value_type = void;

  bool start(waiter& w, const environment& env) noexcept {
    if (channel_->closed_) return end_at_once(state::closed);
    if (env.stop.stop_requested()) return end_at_once(state::stopped);
    if (channel_->try_send(std::move(item_))) return end_at_once(state::sent);
    channel_->senders_.push_back(*this);
    begin(w, env);
    return false;
  }
  [[nodiscard]] bool failed() const noexcept { return state_ != state::sent; }
  result<void> take_result() noexcept {
    if (state_ == state::stopped) return cancelled_result;
    if (state_ == state::closed) return refusal();
    return {};
  }

 private:
  friend class channel;
  enum class state : unsigned char { waiting, sent, stopped, closed };

  send_op(channel& c, T&& item) noexcept
      : suspension{&on_stop}, channel_{&c}, item_{std::move(item)} {}
  static failure refusal() noexcept { return {.code = errc::closed, .call = "channel"}; }
  static void on_stop(stop_callback& callback) noexcept {
    auto& self = static_cast<send_op&>(callback);
    self.list_hook<send_op>::unlink();
    self.end(state::stopped);
  }
  bool end_at_once(state how) noexcept {
    state_ = how;
    return true;
  }
  void end(state how) noexcept {
    state_ = how;
    suspension::end();
  }

  channel* channel_;
  T item_;
  state state_ = state::waiting;
};

template <class T>
class [[nodiscard]] channel<T>::receive_op : public operation_base<receive_op> {
 public:
  using value_type = std::optional<T>;
  bool start(waiter& w, const environment& env) noexcept { return acquire_.start(w, env); }
  /// Returns true after a stop only: a closed channel is an answer, not a failure.
  [[nodiscard]] bool failed() const noexcept { return acquire_.was_stopped(); }
  result<value_type> take_result() noexcept {
    const result<void> outcome = acquire_.take_result();
    if (outcome.is_cancelled()) return cancelled_result;
    if (outcome.has_failure()) return value_type{};
    return value_type{channel_->pop()};
  }

 private:
  friend class channel;
  explicit receive_op(channel& c) noexcept : channel_{&c}, acquire_{c.items_.acquire()} {}
  channel* channel_;
  semaphore::acquire_op acquire_;
};

}  // namespace cordma
