#pragma once

#include <cordma/rpc/client.hpp>

#include <optional>
#include <random>

namespace cordma::rpc::detail {

/// Gives a client that has lost its connection another one, while calls wait for that. Waits longer
/// after each attempt, until a server answers. Thread: the executor's.
class reconnector final : private waiter {
 public:
  /// \param connect  null: a client whose one connection is not replaced.
  reconnector(client_core& core, client::connector connect, const reconnect_options& options);
  reconnector(reconnector&&) = delete;

  [[nodiscard]] bool can_connect() const noexcept { return connector_ != nullptr; }
  /// Begins, unless it is at it already. The client hears in a later iteration of the event loop.
  void connect() noexcept;
  /// Begins no other attempt, and drops the one that runs.
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
