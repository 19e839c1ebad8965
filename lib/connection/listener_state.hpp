#pragma once

#include "acceptor.hpp"
#include "handshake_set.hpp"
#include "io/logger.hpp"

#include <cordma/connection/listener.hpp>
#include <cordma/coro/channel.hpp>
#include <cordma/coro/scope.hpp>
#include <cordma/detail/base/callback.hpp>

#include <chrono>
#include <memory>
#include <optional>

namespace cordma {

/// \errors errc::limit_exceeded: names the value and its limit.
void check(const listener_options& options);

namespace detail {

/// Accepts clients and runs their handshakes side by side, each with its own deadline. The
/// connections wait until they are accepted. An error of one client ends its own handshake and
/// nothing else. `handshake_set` gives out their places. The object destroys itself: once it is
/// dropped, and nothing of it runs. \thread the executor's.
class listener_state {
 public:
  /// Pause after a failure of accept(2), which would fail again at once.
  static constexpr std::chrono::milliseconds accept_pause{50};

  listener_state(cordma::executor& owner, std::unique_ptr<acceptor> clients,
                 callback<task<connection>(arrival&)> shake_hands, const listener_options& options,
                 const logger* log = nullptr);
  listener_state(const listener_state&) = delete;
  listener_state& operator=(const listener_state&) = delete;

  /// Gives the next ready connection; nothing once the listener is closed and all are taken.
  auto accept() noexcept { return ready_.receive(); }
  /// Gives the next connection that is still open. \errors errc::closed; errc::device_failed.
  task<connection> accept_open();
  /// Ends waits for a connection, frees the port so that clients are refused, and stops the
  /// handshakes in progress. Idempotent.
  void close() noexcept;
  /// Closes. Nobody refers to the object any more.
  void drop() noexcept;

  [[nodiscard]] const socket_address& local_address() const noexcept { return local_; }

  cordma::executor& executor;
  listener_counters counters;
  std::optional<failure> last_rejection;
  endpoint::bootstrap kind = endpoint::bootstrap::tcp;
  event all_ended;  ///< Set once nothing runs after `close`.

 private:
  ~listener_state() = default;
  task<> accept_loop();
  /// Closes because the door has ended.
  void close(const failure& why) noexcept;
  task<> serve(std::unique_ptr<arrival> client, std::unique_ptr<handshake_set::member> handshake);
  task<> finish();

  const std::unique_ptr<acceptor> acceptor_;
  const callback<task<connection>(arrival&)> shake_hands_;
  const logger* const log_;
  const socket_address local_;
  handshake_set handshakes_;
  channel<connection> ready_;
  scope tasks_;
  failure why_closed_{.code = errc::closed, .call = "accept"};
  bool is_closing_ = false;
  bool is_finished_ = false;  ///< No task waits for the others to end.
  bool is_dropped_ = false;
};

}  // namespace detail
}  // namespace cordma
