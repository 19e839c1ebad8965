#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/connection.hpp>
#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/base/callback.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/rpc/call_op.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/method.hpp>

#include <chrono>
#include <cstdint>
#include <memory>
#include <utility>

namespace cordma {

class executor;

}  // namespace cordma

namespace cordma::rpc {

struct client_options {
  /// How a client that makes its own connections makes the next one.
  struct reconnect_options {
    /// Wait before the second attempt in a row. It doubles with each attempt, up to `delay_max`.
    time_span delay = std::chrono::milliseconds{10};
    time_span delay_max = std::chrono::seconds{1};
    /// Attempts that fail in a row before the waiting calls fail. 0: they wait for their deadlines.
    unsigned attempts_max = 0;
  };

  stream_options stream{};
  /// Timeout of calls that name none. Every call has one, of 1 us to 24 h.
  time_span call_timeout = std::chrono::seconds{10};
  /// Calls in flight; further ones wait. 1 to 65,535.
  unsigned calls_max = 1024;
  reconnect_options reconnect{};
  /// Takes a span of each call that is started. Null: none.
  rpc::tracer* tracer = nullptr;
};

struct client_counters {
  std::uint64_t calls = 0;      ///< calls that were started
  std::uint64_t answered = 0;   ///< calls that got a reply
  std::uint64_t refused = 0;    ///< calls that the server, its handler or the client itself refused
  std::uint64_t timed_out = 0;  ///< calls whose deadline came first
  std::uint64_t stopped = 0;    ///< calls that the program stopped or dropped
  std::uint64_t lost = 0;       ///< the connection or the client ended, or none could be made
  std::uint64_t repeated = 0;   ///< calls that were sent again, on another connection
  std::uint64_t late = 0;       ///< answers that nobody waited for any more
  std::uint64_t connects = 0;   ///< connections that were made
};

/// Calls methods of a server over a connection. Any number of calls can run at once, and are
/// answered in any order. At most `calls_max` are in flight, and no more than the server has
/// buffers for. Move-only. Dropping the client ends its calls with errc::closed.
/// \thread the executor's.
///
/// With a `connector`, the client makes a connection when there is a call and no connection. After
/// a loss, a call that was not sent goes by the next connection. A call that may have run is sent
/// again only when its method is idempotent; otherwise it fails.
class CORDMA_EXPORT client {
 public:
  using connector = callback<task<cordma::connection>()>;

  client() noexcept = default;
  /// Calls over this connection only, on which nothing was sent or received.
  /// \errors what `message_stream` throws; errc::limit_exceeded: an option. With a tracer also an
  ///   errno of getrandom(2).
  explicit client(cordma::connection conn, const client_options& options = {});
  /// Calls `connect` on the executor. It may throw, and must not close or destroy this client.
  /// \errors errc::refused: `connect` is empty. errc::limit_exceeded: an option. With a tracer also
  ///   an errno of getrandom(2).
  client(executor& executor, connector connect, const client_options& options = {});

  /// \code
  ///     const value v = co_await client.call<get>({.table = 1, .row = 2}, {.timeout = 50ms});
  /// \endcode
  /// What `request` views must live until the call has ended. A reply that is a view comes as
  /// `viewed`. When a call is stopped, or its deadline comes, the server is told and the call ends.
  /// A call that lent a `source` or `sink` ends when the server's access to that has ended.
  /// \errors  errc::timed_out; errc::disconnected and others of a lost connection: it may have run.
  ///   errc::unknown_method, errc::handler_failed (its text is the detail), errc::shutting_down (it
  ///   has not run); errc::wrong_length: the request or the reply is longer than the other side
  ///   takes; errc::bad_message: one of them does not fit its type; errc::incompatible_peer:
  ///   another version of the protocol; errc::closed: the client was dropped or closed;
  ///   errc::limit_exceeded: it has 65,536 calls, waiting ones included, or lends by a connection
  ///   whose `send_wr_max` is below 4. errc::stale_slice and others of
  ///   `connection::send_local_mr`: the source or sink cannot be lent. What the codec and the
  ///   allocator throw.
  /// \cost  no allocation once warm for bytes and plain types; one SEND.
  template <detail::any_method M>
  detail::call_op<M> call(typename M::request request, const call_options& options) {
    return detail::call_op<M>{core(), std::move(request), options};
  }
  template <detail::any_method M>
  detail::call_op<M> call(typename M::request request = {}) {
    return detail::call_op<M>{core(), std::move(request)};
  }

  /// Ends the calls with errc::closed, once what they lent has come back, and closes the connection
  /// (`connection::close`).
  task<> close();
  [[nodiscard]] const client_counters& counters() const noexcept;
  /// Counters of the present connection, or of the last one.
  [[nodiscard]] const stream_counters& stream() const noexcept;
  /// The present connection; null: none.
  [[nodiscard]] cordma::connection* connection() noexcept;
  [[nodiscard]] explicit operator bool() const noexcept { return core_ != nullptr; }

 private:
  struct CORDMA_EXPORT end {
    void operator()(detail::client_core* core) const noexcept;
  };
  [[nodiscard]] detail::client_core& core() const noexcept {
    CORDMA_ASSERT(core_ != nullptr, "used an empty client");
    return *core_;
  }
  std::unique_ptr<detail::client_core, end> core_;
};

}  // namespace cordma::rpc
