#pragma once

#include <cordma/coro/operation.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/io/executor.hpp>
#include <cordma/io/reactor.hpp>

#include <cstdint>

namespace cordma {

/// What to wait for on a descriptor; combine with `|`. An error on it counts as each of them.
enum class fd_events : unsigned char {
  readable = 1,  ///< Bytes, a connection, an event, or the end of the stream (POLLIN).
  writable = 2,  ///< POLLOUT.
  hang_up = 4,   ///< The peer's FIN or RST has arrived (POLLRDHUP).
};
constexpr fd_events operator|(fd_events a, fd_events b) noexcept {
  return fd_events(unsigned(a) | unsigned(b));
}
constexpr bool has(fd_events set, fd_events one) noexcept {
  return (unsigned(set) & unsigned(one)) != 0;
}

enum class watch_kind : unsigned char {
  edges,  ///< Fires when it begins if it is ready then, and at each change: read to EAGAIN.
  once,   ///< Fires once, and at once if it is ready.
};

/// Calls a function when a descriptor is ready, from the executor's turn. The function learns what
/// happened by trying: it reads to EAGAIN, and may destroy anything, this watch too. Destroying it
/// ends the watching, at any time, and a close after that really closes the file. It may fire
/// without cause. For a bad descriptor it fires once and watches no longer; a regular file is
/// always ready, and must not be watched for edges.
/// \thread the executor's. \cost to begin, nothing until the executor's next kernel entry, of which
/// it becomes part; to end, one system call, and one more for each 20 events that are pending.
class fd_watch {
 public:
  using function = void (*)(fd_watch&) noexcept;

  /// Watches from now on, each edge. \errors `std::bad_alloc`.
  fd_watch(executor& home, int fd, fd_events events, function on_ready);
  /// Watches nothing until `watch`.
  fd_watch(int fd, fd_events events, function on_ready) noexcept
      : on_ready_{on_ready}, fd_{fd}, events_{events} {}
  /// Only while it watches nothing.
  fd_watch(fd_watch&& other) noexcept;
  fd_watch& operator=(fd_watch&&) = delete;
  ~fd_watch() { unwatch(); }

  void watch(reactor& home, watch_kind kind);
  void unwatch() noexcept {
    if (home_ != nullptr) std::exchange(home_, nullptr)->unwatch(*this);
  }
  [[nodiscard]] bool is_watching() const noexcept { return home_ != nullptr; }

  [[nodiscard]] int fd() const noexcept { return fd_; }
  [[nodiscard]] fd_events events() const noexcept { return events_; }
  [[nodiscard]] watch_kind kind() const noexcept { return kind_; }

  // For reactors.

  /// Ready. A `once` watches no longer when the function is called.
  void fired() noexcept {
    if (kind_ == watch_kind::once) home_ = nullptr;
    on_ready_(*this);
  }
  /// The reactor is being destroyed, or cannot watch this any longer.
  void abandoned() noexcept { home_ = nullptr; }
  /// Whatever helps it to find its own record of this watch.
  std::uint32_t key = 0;

 private:
  function on_ready_;
  reactor* home_ = nullptr;
  int fd_;
  fd_events events_;
  watch_kind kind_ = watch_kind::edges;
};

/// What operations on a descriptor share: try, and while that would block, wait for readiness and
/// try again. Nothing of the caller's is touched while it waits, so it may be destroyed any time.
/// Works in any coroutine: who waits is resumed by the executor.
class CORDMA_EXPORT fd_operation : private fd_watch, private suspension {
 public:
  bool start(waiter& w, const environment& env);
  [[nodiscard]] scheduler* own_scheduler() const noexcept { return executor_; }

 protected:
  /// True: it ended. Called at the start and at each readiness.
  using attempt_function = bool (*)(fd_operation&) noexcept;
  fd_operation(executor& home, int fd, fd_events events, attempt_function attempt) noexcept
      : fd_watch{fd, events, &on_ready},
        suspension{&on_stop},
        executor_{&home},
        attempt_{attempt} {}
  fd_operation(fd_operation&&) noexcept = default;
  ~fd_operation() = default;

  using fd_watch::fd;
  [[nodiscard]] bool was_stopped() const noexcept { return stopped_; }
  [[nodiscard]] executor& home() const noexcept { return *executor_; }

 private:
  static void on_ready(fd_watch& self) noexcept;
  static void on_stop(stop_callback& self) noexcept;

  executor* executor_;
  attempt_function attempt_;
  bool stopped_ = false;
};

/// Waits once for readiness. A descriptor that is bad or in error counts as ready: the call that
/// follows says what is wrong. \errors `cancelled` when a stop came first.
/// \thread the executor's. \cost part of the executor's next kernel entry; no malloc once warm.
class [[nodiscard]] readiness_op : public operation_base<readiness_op>, public fd_operation {
 public:
  using value_type = void;
  readiness_op(executor& home, int fd, fd_events events) noexcept
      : fd_operation{home, fd, events, &attempt} {}

  [[nodiscard]] bool failed() const noexcept { return was_stopped(); }
  void take() { take_result().value(); }
  result<void> take_result() const noexcept {
    if (was_stopped()) return cancelled_result;
    return {};
  }

 private:
  static bool attempt(fd_operation& self) noexcept {
    // At the start nothing is known yet; the second call comes with the readiness.
    return std::exchange(static_cast<readiness_op&>(self).started_, true);
  }
  bool started_ = false;
};

inline readiness_op readable(executor& home, int fd) noexcept {
  return {home, fd, fd_events::readable};
}
inline readiness_op writable(executor& home, int fd) noexcept {
  return {home, fd, fd_events::writable};
}
/// For a stream socket: the peer's FIN or RST has arrived, read or not.
inline readiness_op hang_up(executor& home, int fd) noexcept {
  return {home, fd, fd_events::hang_up};
}

}  // namespace cordma
