#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>

#include <optional>

namespace cordma {

/// Counts permits; `acquire` waits for them in FIFO order: who asks for many is not overtaken by
/// who asks for few. A permit granted to a waiter that is destroyed before it takes it goes back,
/// so none is ever lost. Must outlive its operations. \thread one.
class CORDMA_EXPORT semaphore {
 public:
  class acquire_op;

  explicit semaphore(std::size_t permits) noexcept : permits_{permits} {}
  semaphore(const semaphore&) = delete;
  semaphore& operator=(const semaphore&) = delete;
  ~semaphore();

  /// Takes `count` permits; throws `cancelled` when a stop came first, and what `close` was given
  /// once it is closed and the permits are used up.
  acquire_op acquire(std::size_t count = 1) noexcept;
  /// Without waiting, and never past those who wait.
  [[nodiscard]] bool try_acquire(std::size_t count = 1) noexcept {
    if (permits_ < count || !waiting_.empty()) return false;
    permits_ -= count;
    return true;
  }
  void release(std::size_t count = 1) noexcept {
    permits_ += count;
    if (!waiting_.empty()) serve_waiting();
  }
  /// Ends all who wait, and all later ones, with `reason`. Permits there are can still be taken.
  void close(const failure& reason) noexcept;
  [[nodiscard]] bool is_closed() const noexcept { return closed_.has_value(); }
  [[nodiscard]] std::size_t available() const noexcept { return permits_; }

 private:
  void serve_waiting() noexcept;
  /// Moves those who can be served to `ended`.
  void grant(intrusive_list<acquire_op>& ended) noexcept;
  /// Resumes, which may destroy this semaphore or other members of `ended`: touches only the list,
  /// which is on the caller's stack.
  static void end_all(intrusive_list<acquire_op>& ended) noexcept;

  std::size_t permits_;
  intrusive_list<acquire_op> waiting_;
  std::optional<failure> closed_;
};

class CORDMA_EXPORT [[nodiscard]] semaphore::acquire_op : public operation_base<acquire_op>,
                                                          public list_hook<semaphore::acquire_op>,
                                                          private suspension {
 public:
  using value_type = void;

  acquire_op(acquire_op&&) noexcept = default;  // Only before it starts.
  ~acquire_op() {
    // The list first: giving permits back may grant to others.
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
  [[nodiscard]] bool was_stopped() const noexcept { return state_ == state::stopped; }
  [[nodiscard]] bool failed() const noexcept { return was_stopped() || state_ == state::closed; }
  void take() { take_result().value(); }
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
