#pragma once

#include <cordma/connection/serve.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/runtime/runtime.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <vector>

namespace cordma {

/// What becomes of a connection: runs on the thread of `rt`, the group's `index`th, one call a
/// connection, side by side. Called on all threads at once: what it shares between them is its own
/// affair. When the group is stopped, its waits end with `cancelled`.
using connection_handler = callback<task<>(runtime& rt, unsigned index, connection conn)>;

struct serve_options {
  /// Of the whole listener, from the TCP accept to the end of the handler; 1 to
  /// `connections_limit`. Further clients wait in the kernel, as many as `tcp_backlog`, until one
  /// ends or their `connect_timeout` is over.
  unsigned connections_max = 1024;
  /// For one handshake; a client that is slower is refused.
  std::chrono::milliseconds handshake_timeout{5000};
  int tcp_backlog = 128;
  /// Otherwise than the defaults of the runtime that the connection is made on.
  connection_changes connections{};
  /// In place of `connections`, for what is not the same on all threads, as `receives_from` is not:
  /// called once on each, by `serve`, which throws what it throws.
  callback<connection_options(runtime& rt, unsigned index)> connections_of{};
  /// Told of what ended a handshake or a handler, `cancelled` excepted: on the thread where that
  /// was. It must not throw.
  callback<void(unsigned index, const handler_failure& failed)> on_failure{};

  static constexpr unsigned connections_limit = 1u << 20;
};

struct group_listener_counters {
  std::uint64_t connected = 0;        ///< Handshakes that ended well.
  std::uint64_t rejected = 0;         ///< Handshakes that did not.
  std::uint64_t handlers_failed = 0;  ///< Handlers that threw, other than `cancelled`.
  std::uint64_t accept_errors = 0;    ///< accept(2) failed: mostly no descriptor was left.
};

/// One port whose connections are spread over the threads of a group: the first thread accepts, and
/// hands each socket to the thread that has the fewest, in turn where several have. Handshake,
/// queue pair and handler are that thread's. Why so: docs/decisions/0006-one-listener.md.
/// Made by `runtime_group::serve`. \thread any.
class CORDMA_EXPORT group_listener {
 public:
  /// How long it pauses when accept(2) fails: it would fail again at once.
  static constexpr std::chrono::milliseconds accept_pause{50};

  /// Where a thread of the group does its work.
  struct place {
    runtime& rt;
    scope& work;
  };

  /// Listens, and accepts nothing before `start`. \errors as `runtime_group::serve`.
  group_listener(const std::vector<place>& places, const endpoint& local, serve_options options,
                 connection_handler handler);
  group_listener(const group_listener&) = delete;
  group_listener& operator=(const group_listener&) = delete;
  ~group_listener();
  /// Returns when the first thread accepts.
  void start();

  [[nodiscard]] const endpoint& local_endpoint() const noexcept { return local_; }
  [[nodiscard]] group_listener_counters counters() const noexcept;

 private:
  struct seat;

  void choose_options(seat& of);
  task<> accept_all(tcp_listener door);
  bool hand_over(unique_fd socket) noexcept;
  seat& next_seat() noexcept;
  void begin(seat& here, unique_fd socket) noexcept;
  task<> serve(seat& here, unique_fd socket);
  task<> connect_and_handle(seat& here, tcp_stream stream, bool& is_connected);
  void give_back(seat& here) noexcept;

  const serve_options options_;
  const connection_handler handler_;
  std::vector<std::unique_ptr<seat>> seats_;
  // The first thread's.
  std::optional<tcp_listener> door_;  // Until that thread has it.
  endpoint local_;
  semaphore room_;
  std::size_t last_seat_;
};

}  // namespace cordma
