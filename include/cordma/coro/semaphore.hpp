#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>

#include <optional>

namespace cordma {

/// Counts permits. `acquire` waits for them in FIFO order: a large request is not overtaken by a
/// small one. A permit granted to a waiter that is destroyed before it takes the permit returns, so
/// none is lost. The semaphore outlives its operations. \thread one.
class CORDMA_EXPORT semaphore {
 public:
  class acquire_op;

  explicit semaphore(std::size_t permits) noexcept : permits_{permits} {}
  semaphore(semaphore&&) = delete;
  ~semaphore();

  /// Takes `count` permits. \errors `cancelled` when a stop came first; the reason of `close` once
  /// the semaphore is closed and the permits are used up.
  acquire_op acquire(std::size_t count = 1) noexcept;
  /// Takes `count` permits without waiting, and never ahead of waiters.
  [[nodiscard]] bool try_acquire(std::size_t count = 1) noexcept {
    if (permits_ < count || !waiting_.empty()) return false;
    permits_ -= count;
    return true;
  }
  void release(std::size_t count = 1) noexcept {
    permits_ += count;
    if (!waiting_.empty()) serve_waiting();
  }
  /// Ends all present and later waits with `reason`. Remaining permits can still be taken.
  void close(const failure& reason) noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return closed_.has_value(); }
  [[nodiscard]] std::size_t available() const noexcept { return permits_; }
  [[nodiscard]] bool has_waiters() const noexcept { return !waiting_.empty(); }

 private:
  void serve_waiting() noexcept;
  /// Moves the operations that can be served to `ended`.
  void grant(intrusive_list<acquire_op>& ended) noexcept;
  /// Resumes the operations in `ended`. That may destroy this semaphore or other members of
  /// `ended`, so the function touches only the list, which is on the caller's stack.
  static void end_all(intrusive_list<acquire_op>& ended) noexcept;

  std::size_t permits_;
  intrusive_list<acquire_op> waiting_;
  std::optional<failure> closed_;
};

/// A wait for permits.
///
/// An operation is `idle` until it ends, and in the semaphore's list while it waits. `start` or
/// `grant` makes it `granted`, and `take_result` then `taken`; a granted one that is destroyed
/// returns its permits. A stop makes it `stopped`, and `close` makes it `closed`.
class CORDMA_EXPORT [[nodiscard]] semaphore::acquire_op : public operation_base<acquire_op>,
                                                          public list_hook<semaphore::acquire_op>,
                                                          private suspension {
 public:
  using value_type = void;

  acquire_op(acquire_op&&) noexcept = default;  // Moved only before it starts.
  ~acquire_op() {
    // Unlink first: returning permits may grant to others.
    list_hook<acquire_op>::unlink();
    if (state_ == state::granted) semaphore_->release(count_);
  }

  bool start(waiter& w, const environment& env) noexcept {
    if (env.stop.stop_requested()) return end_at_once(state::stopped);
    if (semaphore_->try_acquire(count_)) return end_at_once(state::granted);
    if (semaphore_->is_closed()) return end_at_once(state::closed);
    semaphore_->waiting_.push_back(*this);
    begin(w, env);
    return false;
  }
  /// Returns true while the operation waits, and is served before all others.
  [[nodiscard]] bool is_next() const noexcept {
    return semaphore_->has_waiters() && &semaphore_->waiting_.front() == this;
  }
  [[nodiscard]] bool was_stopped() const noexcept { return state_ == state::stopped; }
  [[nodiscard]] bool failed() const noexcept { return was_stopped() || state_ == state::closed; }
  result<void> take_result() noexcept;

 private:
  friend class semaphore;
  enum class state : unsigned char { idle, granted, taken, stopped, closed };

  acquire_op(semaphore& s, std::size_t count) noexcept
      : suspension{&on_stop}, semaphore_{&s}, count_{count} {}
  static void on_stop(stop_callback& callback) noexcept;
  bool end_at_once(state how) noexcept {
    state_ = how;
    return true;
  }

  semaphore* semaphore_;
  std::size_t count_;
  state state_ = state::idle;
};

inline semaphore::acquire_op semaphore::acquire(std::size_t count) noexcept {
  return acquire_op{*this, count};
}

}  // namespace cordma
