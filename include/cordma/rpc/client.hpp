#pragma once

#include <cordma/connection/connection.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/rpc/call_op.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/call.hpp>
#include <cordma/rpc/method.hpp>

#include <chrono>
#include <cstdint>
#include <utility>

namespace cordma {

class executor;

}  // namespace cordma

namespace cordma::rpc {

/// How a client that makes its own connections makes the next one.
struct reconnect_options {
  std::chrono::milliseconds delay{10};        ///< Before the second attempt in a row, …
  std::chrono::milliseconds delay_max{1000};  ///< … twice that each time, up to this.
  /// That fail in a row, before calls fail; 0: calls wait until their deadlines.
  unsigned attempts_max = 0;
};

struct client_options {
  stream_options stream{};
  /// Of calls that name none. Each has one.
  time_span deadline = std::chrono::seconds{10};
  /// Calls under way; further ones wait. 1 to 65,535.
  unsigned calls_max = 1024;
  reconnect_options reconnect{};
};
/// \errors errc::limit_exceeded: the first value out of range, with its name and limits.
void check(const client_options& options);

struct client_counters {
  std::uint64_t calls = 0;      ///< That were begun.
  std::uint64_t answered = 0;   ///< By a reply.
  std::uint64_t refused = 0;    ///< By the server, its handler, or here, before they were sent.
  std::uint64_t timed_out = 0;  ///< Their deadline came first.
  std::uint64_t stopped = 0;    ///< By whoever waited.
  std::uint64_t lost = 0;       ///< The connection or the client ended, or none could be made.
  std::uint64_t repeated = 0;   ///< On another connection.
  std::uint64_t late = 0;       ///< Answers that nobody waited for any more.
  std::uint64_t connects = 0;   ///< Connections that were made.
};

/// Calls methods of a server over a connection. Any number of calls at once, answered in any order;
/// `calls_max` of them are under way, and no more than the server has buffers for. Move-only.
/// Dropping it ends its calls with errc::closed. \thread the executor's.
///
/// With a `connector` it makes its connections itself, when there is a call and none is there. A
/// call that was not sent when the connection went is sent on the next one; one that may have run
/// is repeated only when its method is idempotent; others fail.
class client {
 public:
  using connector = callback<task<cordma::connection>()>;

  client() noexcept = default;
  /// On this connection only, on which nothing was sent or received.
  /// \errors what `message_stream` throws; errc::limit_exceeded: an option.
  explicit client(cordma::connection conn, const client_options& options = {});
  /// `connect` is called in `home`, and may throw. It must not close or destroy this client.
  /// \errors errc::refused: `connect` is empty. errc::limit_exceeded: an option.
  client(executor& home, connector connect, const client_options& options = {});
  client(client&&) noexcept = default;
  client& operator=(client&& other) noexcept;
  ~client();

  /// \code
  ///     const value v = co_await client.call<get>({.table = 1, .row = 2}, {.deadline = 50ms});
  /// \endcode
  /// What `request` views must be there until the call has ended. A reply that is a view comes as
  /// `viewed`. A call that is stopped, or whose deadline comes, tells the server, and ends: at
  /// once, but when it lent a `source` or `sink`, when the server's access to that has ended.
  /// \errors  errc::timed_out; errc::disconnected and others of a lost connection: it may have run.
  ///   errc::unknown_method, errc::handler_failed (its text is the detail), errc::shutting_down (it
  ///   has not run); errc::wrong_length: the request or the reply is longer than the other side
  ///   takes; errc::bad_message: either is not what its type says; errc::incompatible_peer: another
  ///   version of the protocol; errc::closed: the client was dropped or closed;
  ///   errc::limit_exceeded: it has 65,536 calls, waiting ones included, or lends by a connection
  ///   whose `send_wr_max` is below 4. errc::stale_slice
  ///   and others of `connection::send_local_mr`: the source or sink cannot be lent. What the codec
  ///   and the allocator throw.
  /// \cost  no allocation once warm for bytes and plain types; one SEND.
  template <any_method M>
  detail::call_op<M> call(typename M::request request, const call_options& options) {
    return detail::call_op<M>{core(), std::move(request), options};
  }
  template <any_method M>
  detail::call_op<M> call(typename M::request request = {}) {
    return detail::call_op<M>{core(), std::move(request)};
  }

  /// Ends the calls with errc::closed, when what they lent is back, and closes the connection
  /// (`connection::close`).
  task<> close();
  [[nodiscard]] const client_counters& counters() const noexcept;
  /// Of the connection that there is, or was last.
  [[nodiscard]] const stream_counters& stream() const noexcept;
  /// Null: there is none now.
  [[nodiscard]] cordma::connection* connection() noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return core_.get() != nullptr; }

 private:
  [[nodiscard]] detail::client_core& core() const noexcept {
    CORDMA_ASSERT(core_.get() != nullptr, "used an empty client");
    return *core_.get();
  }
  detail::client_ref core_;
};

}  // namespace cordma::rpc
