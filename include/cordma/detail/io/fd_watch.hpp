#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/io/reactor.hpp>

#include <poll.h>

#include <cstdint>

namespace cordma {

/// Readiness to wait for on a descriptor; combine with `|`. An error on it counts as each of them.
enum class fd_events : unsigned short {
  readable = POLLIN,    ///< Bytes, a connection, an event, or the end of the stream.
  writable = POLLOUT,   ///< Room for bytes.
  hang_up = POLLRDHUP,  ///< The peer's FIN or RST has arrived.
};
constexpr fd_events operator|(fd_events a, fd_events b) noexcept {
  return fd_events(unsigned(a) | unsigned(b));
}

enum class watch_kind : unsigned char {
  edges,  ///< Fires at the start if ready, and at each change: read to EAGAIN.
  once,   ///< Fires once, immediately if ready.
};

/// Calls a function when a descriptor is ready, in an event-loop iteration. The function finds out
/// what happened by reading to EAGAIN; it may destroy anything, including the watch. Destroying the
/// watch at any time ends the watching, and a close after that really closes the file.
///
/// The watch may fire without cause. For a bad descriptor it fires once and then watches no longer.
/// A regular file is always ready, and must not be watched for edges.
/// \thread the executor's.
/// \cost the start becomes part of the executor's next kernel entry. The end costs one system call,
///   and one more for each 20 pending events.
class fd_watch {
 public:
  using function = void (*)(fd_watch&) noexcept;

  /// Watches each edge from now on. \errors `std::bad_alloc`.
  fd_watch(cordma::executor& executor, int fd, fd_events events, function on_ready);
  /// Watches nothing until `watch`.
  fd_watch(int fd, fd_events events, function on_ready) noexcept
      : on_ready_{on_ready}, fd_{fd}, events_{events} {}
  /// Moves a watch that watches nothing.
  fd_watch(fd_watch&& other) noexcept;
  fd_watch& operator=(fd_watch&&) = delete;
  ~fd_watch() { unwatch(); }

  void watch(reactor& reactor, watch_kind kind);
  void unwatch() noexcept {
    if (reactor_ != nullptr) std::exchange(reactor_, nullptr)->unwatch(*this);
  }
  [[nodiscard]] bool is_watching() const noexcept { return reactor_ != nullptr; }

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] fd_events events() const noexcept { return events_; }
  [[nodiscard]] watch_kind kind() const noexcept { return kind_; }

  // Reactors call the following functions.

  /// Notifies of readiness. A `once` has ended its watching when the function is called.
  void fired() noexcept {
    if (kind_ == watch_kind::once) reactor_ = nullptr;
    on_ready_(*this);
  }
  /// Notifies that the reactor is being destroyed, or cannot watch this any longer.
  void abandoned() noexcept { reactor_ = nullptr; }
  /// The reactor's key to its own record of this watch.
  std::uint32_t key = 0;

 private:
  function on_ready_;
  reactor* reactor_ = nullptr;
  int fd_;
  fd_events events_;
  watch_kind kind_ = watch_kind::edges;
};

/// Common part of operations on a descriptor: try, and while that would block, wait for readiness
/// and try again. A waiting operation touches nothing of the caller's, so it may be destroyed at
/// any time. Every coroutine can await it: the executor resumes the waiter.
class CORDMA_EXPORT fd_operation : private fd_watch, private suspension {
 public:
  bool start(waiter& w, const environment& env);
  [[nodiscard]] scheduler* own_scheduler() const noexcept { return executor_; }

 protected:
  /// Returns true if the operation ended. Called at the start and at each readiness.
  using attempt_function = bool (*)(fd_operation&) noexcept;
  fd_operation(cordma::executor& executor, int fd, fd_events events,
               attempt_function attempt) noexcept
      : fd_watch{fd, events, &on_ready},
        suspension{&on_stop},
        executor_{&executor},
        attempt_{attempt} {}
  fd_operation(fd_operation&&) noexcept = default;
  ~fd_operation() = default;

  using fd_watch::fd;
  [[nodiscard]] bool was_stopped() const noexcept { return stopped_; }
  [[nodiscard]] cordma::executor& executor() const noexcept { return *executor_; }

 private:
  static void on_ready(fd_watch& self) noexcept;
  static void on_stop(stop_callback& self) noexcept;

  cordma::executor* executor_;
  attempt_function attempt_;
  bool stopped_ = false;
};

/// Waits once for readiness. A descriptor that is bad or in error counts as ready: the next call on
/// it reports the error.
/// \errors `cancelled` when a stop came first.
/// \thread the executor's.
/// \cost part of the executor's next kernel entry; no malloc once warm.
class [[nodiscard]] readiness_op : public operation_base<readiness_op>, public fd_operation {
 public:
  using value_type = void;
  readiness_op(cordma::executor& executor, int fd, fd_events events) noexcept
      : fd_operation{executor, fd, events, &attempt} {}

  [[nodiscard]] bool failed() const noexcept { return was_stopped(); }
  result<void> take_result() const noexcept {
    if (was_stopped()) return cancelled_result;
    return {};
  }

 private:
  static bool attempt(fd_operation& self) noexcept {
    // The first call, at the start, knows nothing yet; the second call comes with the readiness.
    return std::exchange(static_cast<readiness_op&>(self).started_, true);
  }
  bool started_ = false;
};

inline readiness_op readable(cordma::executor& executor, int fd) noexcept {
  return {executor, fd, fd_events::readable};
}
inline readiness_op writable(cordma::executor& executor, int fd) noexcept {
  return {executor, fd, fd_events::writable};
}
/// Waits until a stream socket has received the peer's FIN or RST, read or not.
inline readiness_op hang_up(cordma::executor& executor, int fd) noexcept {
  return {executor, fd, fd_events::hang_up};
}

}  // namespace cordma
