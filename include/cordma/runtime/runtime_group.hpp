#pragma once

#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/runtime/group_listener.hpp>
#include <cordma/runtime/runtime.hpp>

#include <memory>
#include <vector>

namespace cordma {

/// Returns the CPUs that the calling thread may run on, ascending: taskset(1), a cpuset or its
/// starter may limit them. Threads that it starts inherit them. \errors those of
/// sched_getaffinity(2).
CORDMA_EXPORT [[nodiscard]] std::vector<unsigned> allowed_cpus();

struct runtime_group_options {
  /// Makes the options of each thread's runtime; null: the defaults. It is a function, because
  /// options own what cannot be copied (a reactor). Threads may also differ: in their device, or in
  /// the NUMA node of their memory. The constructor calls it once per thread, in their order.
  callback<runtime_options(unsigned index)> each{};
  /// Number of threads, up to `threads_limit`. 0: one for each CPU in `pin`; if that is empty, one
  /// for each CPU that this process may use.
  unsigned threads = 0;
  /// CPUs of the threads: thread i stays on pin[i]. With `allowed_cpus()`, each thread has one to
  /// itself. Empty: the kernel moves threads freely. Threads that the device's library starts
  /// inherit the CPU.
  std::vector<unsigned> pin{};

  static constexpr unsigned threads_limit = 1024;
};

/// Threads that each run a runtime of their own, for servers that need more than one core. They
/// share nothing; `executor::post` is the only way from one to another.
///
///     runtime_group group{{.pin = allowed_cpus()}};
///     const serve_options known{.connections = {.credentials = &key}};
///     const endpoint where = group.serve({"0.0.0.0", 7471}, handle, known).local_endpoint();
///     group.wait();  // Until a call of `stop`.
///
/// The threads live as long as the group. A group stops once and for all: by `stop`, by a body that
/// throws, or by its destructor. All its tasks, and those started later, then get a stop through
/// their inherited token.
///
/// `run` and `wait` block; a thread of the group must not call them, nor `serve`. \thread any, but
/// one at a time for `serve`.
class CORDMA_EXPORT runtime_group {
 public:
  /// Body of the threads, called on all of them at once. The group keeps it until the last call has
  /// ended, so a lambda with captures is allowed.
  using body = callback<task<>(runtime& rt, unsigned index)>;

  /// Starts the threads one after another; a failure ends those started before.
  /// \errors  What the constructor of `runtime` throws. EINVAL: a CPU that this thread may not use;
  ///   the message names it, and those that it may. errc::limit_exceeded: `threads`.
  ///   errc::out_of_range: `pin` names fewer CPUs than there are threads. EAGAIN: no more threads.
  explicit runtime_group(const runtime_group_options& options = {});
  runtime_group(runtime_group&&) = delete;
  /// Stops the group, waits as `wait` does, and then until dropped connections are closed.
  ~runtime_group();

  /// Runs `each` on every thread, and returns when all have ended. The first exception stops the
  /// group and is thrown when the others have ended; `cancelled` is a normal end.
  void run(const body& each);

  /// Listens, and serves every connection on one of the threads until the group is stopped. The
  /// returned listener lives as long as the group. A handler that throws ends its own connection.
  /// \errors  those of `listener`, for any of the runtimes; errc::limit_exceeded: an option.
  group_listener& serve(const endpoint& local, connection_handler handler,
                        serve_options options = {});

  /// Requests the stop, and returns at once. Idempotent. \thread any; also in a signal handler.
  void stop() noexcept;
  /// Returns when the group was stopped and all its tasks have ended.
  void wait();

  [[nodiscard]] unsigned size() const noexcept;
  /// Returns a thread's own runtime. Other threads may call its `executor().post` and use its
  /// `memory()`.
  [[nodiscard]] runtime& operator[](unsigned index) noexcept;

 private:
  struct member;
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace cordma
