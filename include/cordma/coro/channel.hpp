#pragma once

#include <cordma/coro/semaphore.hpp>

#include <vector>

namespace cordma {

/// A bounded FIFO between coroutines of one thread: senders wait while it is full, receivers while
/// it is empty. A stopped or abandoned receive loses no item. `T` is default-constructible and
/// movable. Must outlive its operations.
template <class T>
class channel {
 public:
  class send_op;
  class receive_op;

  explicit channel(std::size_t capacity) : ring_(capacity), room_{capacity}, items_{0} {
    CORDMA_ASSERT(capacity > 0, "a channel holds at least one item");
  }

  /// Throws `errc::closed` once the channel is closed, `cancelled` when a stop came first: the item
  /// was not sent then.
  send_op send(T item) { return send_op{*this, std::move(item)}; }
  /// The next item, or nothing once the channel is closed and empty.
  receive_op receive() noexcept { return receive_op{*this}; }
  /// False when it is full or closed; `item` is untouched then.
  [[nodiscard]] bool try_send(T&& item) {
    if (items_.is_closed() || !room_.try_acquire()) return false;
    push(std::move(item));
    return true;
  }
  [[nodiscard]] std::optional<T> try_receive() {
    if (!items_.try_acquire()) return std::nullopt;
    return pop();
  }
  /// Receivers get what is there, then nothing; senders fail.
  void close() noexcept {
    const failure reason{.code = errc::closed, .call = "channel"};
    room_.close(reason);
    items_.close(reason);
  }
  [[nodiscard]] std::size_t size() const noexcept { return tail_ - head_; }
  [[nodiscard]] std::size_t capacity() const noexcept { return ring_.size(); }

 private:
  void push(T&& item) {
    ring_[tail_++ % ring_.size()] = std::move(item);
    items_.release();
  }
  T pop() {
    T item = std::move(ring_[head_++ % ring_.size()]);
    room_.release();
    return item;
  }

  std::vector<T> ring_;
  std::size_t head_ = 0;
  std::size_t tail_ = 0;
  semaphore room_;
  semaphore items_;
};

template <class T>
class [[nodiscard]] channel<T>::send_op : public operation_base<send_op> {
 public:
  using value_type = void;
  bool start(waiter& w, const environment& env) noexcept {
    if (channel_->items_.is_closed()) return closed_ = true;
    return acquire_.start(w, env);
  }
  [[nodiscard]] bool failed() const noexcept { return closed_ || acquire_.failed(); }
  void take() { take_result().value(); }
  result<void> take_result() {
    if (closed_) return failure{.code = errc::closed, .call = "channel"};
    result<void> outcome = acquire_.take_result();
    if (outcome.has_value()) channel_->push(std::move(item_));
    return outcome;
  }

 private:
  friend class channel;
  send_op(channel& c, T&& item) : channel_{&c}, item_{std::move(item)}, acquire_{c.room_.acquire()} {}
  channel* channel_;
  T item_;
  semaphore::acquire_op acquire_;
  bool closed_ = false;
};

template <class T>
class [[nodiscard]] channel<T>::receive_op : public operation_base<receive_op> {
 public:
  using value_type = std::optional<T>;
  bool start(waiter& w, const environment& env) noexcept { return acquire_.start(w, env); }
  /// A closed channel is an answer, not a failure.
  [[nodiscard]] bool failed() const noexcept {
    return acquire_.failed() && !channel_->items_.is_closed();
  }
  value_type take() { return take_result().value(); }
  result<value_type> take_result() {
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
