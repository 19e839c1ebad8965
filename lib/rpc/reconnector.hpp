#pragma once

#include <cordma/rpc/client.hpp>

#include <optional>
#include <random>

namespace cordma::rpc::detail {

/// Makes a client's next connection while calls wait for one. Waits longer after each attempt,
/// until a server answers. \thread the executor's.
///
/// Idle, or running: `connect` starts `connect_until_done`. It ends with a connection, or when no
/// call waits, and `on_done` makes it idle; so does `stop`.
class reconnector final : private waiter {
 public:
  /// \param connect  null: the client's one connection is not replaced.
  reconnector(client_core& core, client::connector connect, const reconnect_options& options);
  reconnector(reconnector&&) = delete;

  [[nodiscard]] bool can_connect() const noexcept { return connector_ != nullptr; }
  /// Starts, unless it runs. Calls the client back in a later event-loop iteration.
  void connect() noexcept;
  /// Drops a running attempt.
  void stop() noexcept;
  /// A server has answered: the next attempt need not wait.
  void note_answer() noexcept { failed_attempts_ = 0; }
  /// Adds to `late` why the last attempt failed, if one did since the last connection.
  void explain(failure& late) const noexcept;

 private:
  static std::coroutine_handle<> on_done(waiter& self) noexcept;
  task<> connect_until_done();
  [[nodiscard]] duration delay() noexcept;

  client_core& core_;
  const client::connector connector_;
  const reconnect_options options_;
  std::optional<task<>> work_;
  bool is_running_ = false;
  std::optional<failure> why_;    ///< of the last attempt
  unsigned failed_attempts_ = 0;  ///< in a row, or connections on which nothing was answered
  std::minstd_rand jitter_{std::random_device{}()};
};

}  // namespace cordma::rpc::detail
