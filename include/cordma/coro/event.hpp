#pragma once

#include <cordma/coro/operation.hpp>

namespace cordma {

/// A flag that is set or reset. `wait` ends once the flag is set, and stays ended when it is reset
/// afterwards. The event outlives its waiters. \thread one.
class event {
 public:
  class wait_op;

  event() noexcept = default;
  ~event();
  /// Resumes waiters without a scheduler through this scheduler, and not inside `set`.
  explicit event(cordma::scheduler& scheduler) noexcept : scheduler_{&scheduler} {}
  event(event&&) = delete;

  [[nodiscard]] bool is_set() const noexcept { return set_; }
  void set() noexcept;
  void reset() noexcept { set_ = false; }
  /// \errors `cancelled` when a stop came first.
  wait_op wait() noexcept;

 private:
  bool set_ = false;
  cordma::scheduler* scheduler_ = nullptr;
  intrusive_list<wait_op> waiting_;
};

class [[nodiscard]] event::wait_op : public operation_base<wait_op>,
                                     public list_hook<event::wait_op>,
                                     private suspension {
 public:
  using value_type = void;

  bool start(waiter& w, const environment& env) noexcept {
    if (event_.set_) return true;
    stopped_ = env.stop.stop_requested();
    if (stopped_) return true;
    event_.waiting_.push_back(*this);
    begin(w, {env.scheduler != nullptr ? env.scheduler : event_.scheduler_, env.stop});
    return false;
  }
  [[nodiscard]] cordma::scheduler* own_scheduler() const noexcept { return event_.scheduler_; }
  [[nodiscard]] bool failed() const noexcept { return stopped_; }
  result<void> take_result() noexcept {
    if (stopped_) return cancelled_result;
    return {};
  }

 private:
  friend class event;
  explicit wait_op(event& e) noexcept : suspension{&on_stop}, event_{e} {}
  static void on_stop(stop_callback& callback) noexcept {
    auto& self = static_cast<wait_op&>(callback);
    self.list_hook<wait_op>::unlink();
    self.stopped_ = true;
    self.end();
  }

  event& event_;
  bool stopped_ = false;
};

inline event::~event() { CORDMA_ASSERT(waiting_.empty(), "event destroyed while awaited"); }

inline void event::set() noexcept {
  set_ = true;
  // The list is on the stack: a coroutine that is resumed inline may reset the event and wait
  // again, or destroy it.
  intrusive_list<wait_op> batch;
  batch.splice_back(waiting_);
  while (!batch.empty()) batch.pop_front().end();
}

inline event::wait_op event::wait() noexcept { return wait_op{*this}; }

}  // namespace cordma
