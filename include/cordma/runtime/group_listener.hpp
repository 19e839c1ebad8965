#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/serve.hpp>
#include <cordma/coro/semaphore.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/runtime/runtime.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

namespace cordma {

namespace detail {
class arrival;
class acceptor;
}  // namespace detail

/// Handles one connection on the thread of `rt`, the group's runtime number `index`; calls run side
/// by side. Threads call the handler at once, so the program protects what they share. When the
/// group is stopped, the handler's waits end with `cancelled`.
using connection_handler = callback<task<>(runtime& rt, unsigned index, connection conn)>;

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

}  // namespace cordma
