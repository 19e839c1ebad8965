#pragma once

#include <cordma/connection/listener.hpp>
#include <cordma/detail/rpc/served_method.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/method.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace cordma::rpc {

struct server_options {
  /// Of each connection. Requests that are longer than a buffer count in `large_ahead` until their
  /// calls have ended: so many times `message_bytes_max` is the memory that a client can make the
  /// server allocate. Memory that a call lends has no such bound.
  stream_options stream{};
  /// Calls of one connection that run at once; further ones wait in their receive buffers, and then
  /// at the client. 1 to 65,535.
  unsigned calls_per_connection_max = 1024;
  /// Of all connections; they take turns. 1 to 16 Mi.
  unsigned calls_max = 64 * 1024;
  /// How long an answer may wait for the client to have room for it, and a large one to be read:
  /// then the client is cut off.
  std::chrono::milliseconds answer_timeout{10'000};
  /// How long calls that run may take once the server drains.
  std::chrono::milliseconds drain_timeout{10'000};
};
/// \errors errc::limit_exceeded: the first value out of range, with its name and limits.
void check(const server_options& options);

struct server_counters {
  std::uint64_t calls = 0;             ///< That came.
  std::uint64_t replied = 0;           ///< Handlers that gave a reply, which was sent.
  std::uint64_t failed = 0;            ///< Handlers that threw, or whose reply could not be sent.
  std::uint64_t stopped = 0;           ///< By deadline, by the client, or with the connection.
  std::uint64_t refused = 0;           ///< Unknown methods and versions, what could not be decoded.
  std::uint64_t too_large = 0;         ///< Replies that the client does not take.
  std::uint64_t connections_lost = 0;  ///< That ended otherwise than by a close.
  std::size_t running = 0;             ///< Calls, now.
  std::size_t connections = 0;         ///< Now.
};

namespace detail {
class server_core;
}

/// What a handler knows of its call, and the memory that comes with it. There until the handler has
/// ended.
class server_call {
 public:
  explicit server_call(detail::incoming_call& call) noexcept : call_{call} {}
  server_call(const server_call&) = delete;
  server_call& operator=(const server_call&) = delete;

  /// For reading the source and writing the sink.
  [[nodiscard]] cordma::connection& connection() noexcept;
  /// Until the caller waits no longer; the end of time when it did not say.
  [[nodiscard]] duration remaining() const noexcept;
  [[nodiscard]] bool has_source() const noexcept;
  [[nodiscard]] bool has_sink() const noexcept;
  /// The caller's memory: to be read, or to be written. Once for each. Nothing is sent for it. It
  /// goes back with the answer, or when the caller waits no longer: from then on its slices are
  /// refused (errc::lease_ended).
  /// \errors errc::refused: the caller has none, or waits no longer, or it was asked for before;
  ///   why the connection ended.
  remote_mr source();
  remote_mr sink();
  /// The source, read into memory of the connection's. \errors as `source`; errc::wrong_length: it
  ///   is longer than `bytes_max`; those of `read` and of the allocator.
  task<local_mr> fetch_source(std::size_t bytes_max);

 private:
  detail::incoming_call& call_;
};

/// Runs handlers for the calls that come over any number of connections, each as a task of its own,
/// as soon as it comes. Not movable; must outlive its `serve` tasks. \thread one executor's;
/// servers with more than one core have one on each (`runtime_group`), which share nothing.
class server {
 public:
  /// \errors errc::limit_exceeded: an option.
  explicit server(const server_options& options = {});
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// Says who answers `M`: a function or object, called for each call, that gives a
  /// `task<M::reply>` from a `M::request` and, if it wants it, a `server_call&`. It may be a
  /// coroutine lambda with captures: the server keeps it. A request that is a view is there until
  /// the handler has ended; a reply that is one must view what is there until it is sent: the
  /// request, or what outlives the call.
  ///
  /// The task inherits a stop, which comes with the call's deadline, when the caller gives up, when
  /// the connection ends, and when `serve` is stopped. What it throws reaches the caller as
  /// errc::handler_failed, with its text. Before the first `serve`.
  /// \errors errc::limit_exceeded: another method of the same name, or whose name has the same id;
  ///   both are named.
  template <any_method M, class Handler>
  void handle(Handler handler) {
    constexpr bool gives_task = detail::handles<Handler, M>;
    static_assert(gives_task,
                  "a handler of M gives a cordma::task<M::reply> from an M::request, and takes a "
                  "server_call& besides if it likes");
    if constexpr (gives_task)
      add(std::make_unique<detail::typed_method<M, Handler>>(std::move(handler)));
  }

  /// Answers calls of this connection, on which nothing was sent or received, until it ends, or the
  /// server drains; and until their handlers have ended. A stop is passed on to them, then the
  /// connection is dropped.
  /// \errors of a connection that was not closed by the client: why it was lost. What
  ///   `message_stream` throws.
  task<> serve(connection conn);
  /// Accepts and serves connections until it is stopped, or the server drains, which closes `door`.
  /// Those that are lost are counted, and end nothing. \errors what `listener::accept` throws.
  task<> serve(listener& door);

  /// Takes no more calls: they fail with errc::shutting_down, also on connections that are served
  /// later, each of which is closed after that, or after `drain_timeout`. Listeners that are served
  /// are closed. Calls that run may end, within `drain_timeout`; then they are stopped. Each
  /// connection is closed when it has none left; ends when all are.
  task<> drain();

  [[nodiscard]] const server_counters& counters() const noexcept;
  /// Of all connections that there were.
  [[nodiscard]] stream_counters streams() const noexcept;

 private:
  void add(std::unique_ptr<detail::served_method> m);
  std::unique_ptr<detail::server_core> core_;
};

}  // namespace cordma::rpc
