#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/runtime/runtime.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace cordma {

struct runtime_group_options {
  /// Makes the options of each thread's runtime; null: the defaults. It is a function, because
  /// options own what cannot be copied (a reactor). Threads may also differ: in their device, or in
  /// the NUMA node of their memory. The constructor calls it once per thread, in their order.
  callback<runtime_options(unsigned index)> each{};
  /// Number of threads, up to `threads_limit`. 0: one for each CPU in `pin`; if that is empty, one
  /// for each CPU that this process may use.
  unsigned threads = 0;
  /// CPUs of the threads: thread i stays on pin[i]. With `runtime_group::allowed_cpus()`, each
  /// thread has one to itself. Empty: the kernel moves threads freely. Threads that the device's
  /// library starts inherit the CPU.
  std::vector<unsigned> pin{};

  static constexpr unsigned threads_limit = 1024;
};

namespace detail {
class arrival;
class acceptor;
}  // namespace detail

struct serve_options {
  /// Connections of the whole listener, from the accept to the end of the handler; 1 to
  /// `connections_limit`. Further clients, up to `tcp_backlog`, wait in the kernel until a
  /// connection ends or their `connect_timeout` is over. While one waits, every
  /// `group_listener::crowded_timeout`, handshakes are dropped that have used up a tenth of
  /// `handshake_timeout`.
  unsigned connections_max = 1024;
  /// Handshakes in progress on each thread; 1 to `listener_options::handshakes_limit`. A further
  /// client takes the place of another one as `listener_options::handshakes_max` says.
  unsigned handshakes_max = 64;
  /// Deadline of one handshake; a slower client is refused.
  time_span handshake_timeout = std::chrono::seconds{5};
  int tcp_backlog = 128;
  /// Changes to the defaults of the runtime that makes the connection.
  connection_changes connections{};
  /// Replaces `connections` for options that differ between threads, such as `receives_from`. What
  /// is unset (`connection_changes`) is the runtime's. `serve` calls it once on each thread, and
  /// throws what it throws.
  callback<connection_options(runtime& rt, unsigned index)> connections_of{};
  /// Decides on each client, on the thread that makes its connection; threads call it at once.
  /// None: all may connect.
  admission admit{};
  /// Called with the error of a handshake or a handler, except `cancelled`, on that thread. The
  /// hook must not throw.
  callback<void(unsigned index, const handler_failure& failed)> on_failure{};

  static constexpr unsigned connections_limit = 1u << 20;
};

struct group_listener_counters {
  std::uint64_t connected = 0;        ///< Handshakes that succeeded.
  std::uint64_t rejected = 0;         ///< Handshakes that failed.
  std::uint64_t dropped = 0;          ///< Handshakes that gave their place to a newer client.
  std::uint64_t handlers_failed = 0;  ///< Handlers that threw, other than `cancelled`.
  std::uint64_t accept_errors = 0;    ///< Failures of accept(2): mostly no descriptor was left.
};

/// One port whose connections are spread over the threads of a group. The first thread accepts, and
/// passes each client to the thread with the fewest connections, in turn where several have. By
/// rdma_cm, only threads count whose device the client has come to. That thread runs the handshake,
/// the queue pair and the handler. docs/decisions/0006-one-listener.md gives the reasons.
/// `runtime_group::serve` makes the listener. \thread any.
class CORDMA_EXPORT group_listener {
 public:
  /// Pause after a failure of accept(2), which would fail again at once.
  static constexpr std::chrono::milliseconds accept_pause{50};
  /// Time between two drops of handshakes while a client waits for one of `connections_max` places.
  static constexpr std::chrono::milliseconds crowded_timeout{250};

  /// Handles one connection on the thread of `rt`, the group's runtime number `index`; calls run
  /// side by side. Threads call the handler at once, so the program protects what they share. When
  /// the group is stopped, the handler's waits end with `cancelled`.
  using connection_handler = callback<task<>(runtime& rt, unsigned index, connection conn)>;
  /// A thread of the group: its runtime, and the scope of its tasks.
  struct member_runtime {
    runtime& rt;
    scope& work;
  };

  /// Listens, and accepts nothing before `start`. \errors as `runtime_group::serve`.
  group_listener(const std::vector<member_runtime>& member_runtimes, const endpoint& local,
                 serve_options options, connection_handler handler);
  group_listener(group_listener&&) = delete;
  ~group_listener();
  /// Returns when the first thread accepts.
  void start();

  [[nodiscard]] const endpoint& local_endpoint() const noexcept { return local_; }
  [[nodiscard]] group_listener_counters counters() const noexcept;

 private:
  struct seat;
  using client = std::unique_ptr<detail::arrival>;

  task<> accept_all(std::unique_ptr<detail::acceptor> acceptor);
  void drop_handshakes() noexcept;
  bool hand_over(client newcomer) noexcept;
  seat& next_seat(const detail::arrival& newcomer) noexcept;
  void begin(seat& here, client newcomer) noexcept;
  task<> serve(seat& here, client newcomer);
  void give_back(seat& here) noexcept;

  const serve_options options_;
  const connection_handler handler_;
  std::vector<std::unique_ptr<seat>> seats_;
  // The first thread uses the following members.
  std::unique_ptr<detail::acceptor> acceptor_;  // Until `accept_all` has it.
  endpoint local_;
  semaphore room_;
  std::size_t last_seat_;
};

/// Threads that each run a runtime of their own, for servers that need more than one core. They
/// share nothing; `executor::post` is the only way from one to another.
///
///     runtime_group group{{.pin = runtime_group::allowed_cpus()}};
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

  /// Returns the CPUs that the calling thread may run on, ascending: taskset(1), a cpuset or its
  /// starter may limit them. Threads that it starts inherit them. \errors those of
  /// sched_getaffinity(2). \thread any.
  [[nodiscard]] static std::vector<unsigned> allowed_cpus();

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
  group_listener& serve(const endpoint& local, group_listener::connection_handler handler,
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
