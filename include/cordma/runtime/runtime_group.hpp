#pragma once

#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/runtime/group_listener.hpp>
#include <cordma/runtime/runtime.hpp>

#include <memory>
#include <vector>

namespace cordma {

/// The CPUs that the calling thread may run on, ascending: what taskset(1), a cpuset or whoever
/// started it left it. Threads that it starts inherit them. \errors those of sched_getaffinity(2).
CORDMA_EXPORT [[nodiscard]] std::vector<unsigned> allowed_cpus();

struct runtime_group_options {
  /// What each thread's runtime is made from; null: the defaults. A function, because options own
  /// what cannot be copied (a reactor), and threads may differ: in their device, or in the NUMA
  /// node of their memory. The constructor calls it, once a thread, in their order.
  callback<runtime_options(unsigned index)> each{};
  /// 0: one for each CPU in `pin`, or, when that is empty, for each that this process may use. Up
  /// to `threads_limit`.
  unsigned threads = 0;
  /// Thread i stays on CPU pin[i]; with `allowed_cpus()`, each has one to itself. Empty: the kernel
  /// moves them as it likes. Threads that the device's library starts inherit it.
  std::vector<unsigned> pin{};

  static constexpr unsigned threads_limit = 1024;
};

/// Threads that each run a runtime of their own, for servers that want more than one core: nothing
/// is shared between them, and `executor::post` is the only way from one to another.
///
///     runtime_group group{{.pin = allowed_cpus()}};
///     const endpoint where = group.serve({"0.0.0.0", 7471}, handle).local_endpoint();
///     group.wait();  // Until somebody calls `stop`.
///
/// The threads live as long as the group. It is stopped once and for all: by `stop`, by a body that
/// throws, by its destructor. Then every task on it is asked to stop, by the token that it
/// inherits, and so is all that is started later. `run` and `wait` block; a thread of the group
/// must not call them, nor `serve`. \thread any, but one at a time for `serve`.
class CORDMA_EXPORT runtime_group {
 public:
  /// Called on all threads at once. It lives until the last has ended: it may be a lambda with
  /// captures.
  using body = callback<task<>(runtime& rt, unsigned index)>;

  /// Starts the threads one after another; when one fails, those before it are ended.
  /// \errors  What the constructor of `runtime` throws. EINVAL: a CPU that this thread may not use;
  ///   the message names it, and those that it may. errc::limit_exceeded: `threads`.
  ///   errc::out_of_range: `pin` names fewer CPUs than there are threads. EAGAIN: no more threads.
  explicit runtime_group(const runtime_group_options& options = {});
  runtime_group(const runtime_group&) = delete;
  runtime_group& operator=(const runtime_group&) = delete;
  /// Stops the group, and waits as `wait` does, and until what was dropped is closed.
  ~runtime_group();

  /// Starts `each` on every thread, and returns when all have ended. The first exception stops the
  /// group and is thrown when the others have ended; `cancelled` is a normal end.
  void run(const body& each);

  /// Listens, and serves every connection on one of the threads until the group is stopped. What is
  /// returned lives as long as the group. A handler that throws ends its own connection.
  /// \errors  Those of `listener`, for any of the runtimes. errc::limit_exceeded: an option.
  group_listener& serve(const endpoint& local, connection_handler handler,
                        serve_options options = {});

  /// Asks for the end, and returns at once. Idempotent. \thread any; also in a signal handler.
  void stop() noexcept;
  /// Returns when the group was stopped and all its tasks have ended.
  void wait();

  [[nodiscard]] unsigned size() const noexcept;
  /// Each thread's own. Other threads may call `executor().post` and use `memory()`.
  [[nodiscard]] runtime& operator[](unsigned index) noexcept;

 private:
  class member;
  class state;
  std::unique_ptr<state> state_;
};

}  // namespace cordma
