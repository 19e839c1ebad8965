#pragma once

#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/base/counter.hpp>

#include <cstdint>
#include <utility>

namespace cordma {

class fd_watch;

/// Where an executor waits: for file descriptors, for one alarm, and for other threads. A seam, so
/// that tests wait without sleeping; `executor_options::reactor` takes one, else it is io_uring.
/// Readiness only: no buffer is ever handed to the kernel while a coroutine sleeps, so destroying
/// what waits is always safe (docs/decisions/0002-io-is-readiness.md).
/// \thread all but `wake` on the executor's.
class reactor {
 public:
  reactor() noexcept = default;
  reactor(const reactor&) = delete;
  reactor& operator=(const reactor&) = delete;
  virtual ~reactor() = default;

  /// Called once, on the thread that will run it, before `poll` and `wait`; `watch`, `unwatch` and
  /// `set_alarm` may come earlier. \errors `error`.
  virtual void enable() = 0;
  /// Until `unwatch`, or the first readiness of a `watch_kind::once`, calls `fired` on it from
  /// `poll` or `wait`. The fd stays open meanwhile. \errors `std::bad_alloc`.
  virtual void watch(fd_watch& w) = 0;
  virtual void unwatch(fd_watch& w) noexcept = 0;
  /// One alarm, replaced by the next call. An early or a spurious one is harmless.
  virtual void set_alarm(time_point at) noexcept = 0;
  /// Takes what has come. Enters the kernel only where nothing can be seen otherwise.
  virtual void poll() noexcept = 0;
  /// Blocks until something comes (readiness, the alarm, `wake`, a signal), and takes it.
  virtual void wait() noexcept = 0;
  /// Ends the `wait` under way, or else the next one. Any thread, async-signal-safe.
  virtual void wake() noexcept = 0;

  /// True once after the alarm fired.
  [[nodiscard]] bool take_alarm() noexcept { return std::exchange(alarm_fired_, false); }
  /// How often `poll`, `wait` and `unwatch` entered the kernel. \thread any.
  [[nodiscard]] std::uint64_t enters() const noexcept { return enters_.value(); }

 protected:
  bool alarm_fired_ = false;
  counter enters_;
};

}  // namespace cordma
