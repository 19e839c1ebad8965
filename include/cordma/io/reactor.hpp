#pragma once

#include <cordma/coro/scheduler.hpp>
#include <cordma/detail/base/counter.hpp>
#include <cordma/detail/base/export.hpp>

#include <cstdint>
#include <memory>
#include <utility>

namespace cordma {

class fd_watch;

namespace detail {
class host_calls;
}

/// Interface for waiting: for file descriptors, for one alarm, and for other threads.
/// `executor_options::reactor` takes one, so that tests wait without sleeping. The interface
/// reports readiness only. No buffer is given to the kernel while a coroutine sleeps, so destroying
/// a waiter is always safe (docs/decisions/0002-io-is-readiness.md).
/// \thread the executor's; `wake`: any.
class CORDMA_EXPORT reactor {
 public:
  reactor() noexcept = default;
  reactor(reactor&&) = delete;
  virtual ~reactor() = default;

  /// Makes the reactor on epoll, which has a descriptor to wait for (`arm`).
  /// \errors `error`: EMFILE and others of its three descriptors.
  static std::unique_ptr<reactor> on_epoll();

  /// Returns the name of what it waits with: "io_uring", "epoll".
  [[nodiscard]] virtual const char* name() const noexcept = 0;
  /// Prepares the reactor; called once, on the thread that will run it, before `poll` and `wait`.
  /// Calls of `watch`, `unwatch` and `set_alarm` may come earlier. \errors `error`.
  virtual void enable() = 0;
  /// Calls `w.fired` from `poll` or `wait` at readiness, until `unwatch`, or once for a
  /// `watch_kind::once`. The fd stays open meanwhile. \errors `std::bad_alloc`.
  virtual void watch(fd_watch& w) = 0;
  virtual void unwatch(fd_watch& w) noexcept = 0;
  /// Sets the only alarm, replacing the earlier one. An early or a spurious alarm is harmless.
  virtual void set_alarm(time_point at) noexcept = 0;
  /// Handles what has come. Enters the kernel only where nothing can be seen otherwise.
  virtual void poll() noexcept = 0;
  /// Blocks until something comes (readiness, the alarm, `wake`, a signal), and handles it.
  virtual void wait() noexcept = 0;
  /// Tells the kernel all that `wait` waits for, and returns a descriptor that is readable when
  /// `wait` would end at once. \errors -1: the reactor has none.
  [[nodiscard]] virtual int arm() noexcept { return -1; }
  /// Returns the host that the watched descriptors belong to, by default the kernel's. The type is
  /// private: simulated hosts of the library's own tests override the function.
  [[nodiscard]] virtual detail::host_calls& host() noexcept;
  /// Ends the present `wait`, or else the next one. Async-signal-safe. \thread any.
  virtual void wake() noexcept = 0;

  /// Returns true once after the alarm fired.
  [[nodiscard]] bool take_alarm() noexcept { return std::exchange(alarm_fired_, false); }
  /// Returns how often `poll`, `wait` and `unwatch` entered the kernel. \thread any.
  [[nodiscard]] std::uint64_t enters() const noexcept { return enters_.value(); }

 protected:
  bool alarm_fired_ = false;
  counter enters_;
};

}  // namespace cordma
