#pragma once

#include <cordma/coro/sync_wait.hpp>

#include <stdexcept>

namespace support {

/// A scheduler whose clock jumps to the next deadline when nothing else is left to do: tests of
/// time take none.
struct manual_executor {
  cordma::manual_clock clock;
  cordma::scheduler scheduler{clock};

  /// Resumes what is ready, again and again; the clock stands still.
  void settle() {
    while (scheduler.run_ready() + scheduler.fire_due() > 0) {
    }
  }
  void advance(cordma::duration by) {
    settle();
    clock.advance(by);
    settle();
  }
  template <cordma::operation Op>
  cordma::value_of<Op> run(Op&& op) {
    cordma::detail::end_flag ended;
    if (!op.start(ended, cordma::environment{&scheduler, {}})) {
      for (settle(); !ended.is_set(); settle()) {
        const auto next = scheduler.next_deadline();
        if (next == cordma::time_point::max())
          throw std::logic_error{"nothing is left that could end this"};
        clock.advance(next - clock.now());
      }
    }
    return op.take();
  }
};

/// An operation that runs beside the test, in whose hands its stop and its destruction are.
template <class Op>
class started {
 public:
  started(cordma::scheduler& scheduler, Op op) : op_{std::move(op)} {
    ended_at_once_ = op_.start(flag_, cordma::environment{&scheduler, stop_});
  }
  void request_stop() noexcept { stop_.request_stop(); }
  [[nodiscard]] bool has_ended() const noexcept { return ended_at_once_ || flag_.is_set(); }
  Op& operator*() noexcept { return op_; }
  Op* operator->() noexcept { return &op_; }

 private:
  cordma::stop_source stop_;
  cordma::detail::end_flag flag_;
  Op op_;
  bool ended_at_once_ = false;
};

}  // namespace support
