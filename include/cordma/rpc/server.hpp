#pragma once

#include <cordma/base/time.hpp>
#include <cordma/connection/listener.hpp>
#include <cordma/detail/base/export.hpp>
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
  /// Options of each connection's stream. A request that is longer than a buffer counts in
  /// `large_ahead` until its call has ended. A client can make the server allocate at most
  /// `large_ahead` times `message_bytes_max`. Memory that a call lends has no such bound.
  stream_options stream{};
  /// Calls of one connection that run at once; further ones wait in their receive buffers, and then
  /// at the client. 1 to 65,535.
  unsigned calls_per_connection_max = 1024;
  /// Calls of all connections that run at once; connections take turns. 1 to 16 Mi.
  unsigned calls_max = 64 * 1024;
  /// How long an answer may wait for the client's buffers, and a large one to be read. Then the
  /// server breaks the connection.
  time_span answer_timeout = std::chrono::seconds{10};
  /// How long running calls may take once the server drains.
  time_span drain_timeout = std::chrono::seconds{10};
  /// Takes a span of each call that comes, but for those that are given up before they begin. Null:
  /// none.
  rpc::tracer* tracer = nullptr;
};

struct server_counters {
  std::uint64_t calls = 0;             ///< calls that came
  std::uint64_t replied = 0;           ///< replies that were sent
  std::uint64_t failed = 0;            ///< handlers that threw, or whose reply could not be sent
  std::uint64_t stopped = 0;           ///< calls that a deadline, the client or a loss ended
  std::uint64_t refused = 0;           ///< unknown methods and versions, undecodable requests
  std::uint64_t too_large = 0;         ///< replies that the client does not take
  std::uint64_t connections_lost = 0;  ///< connections that ended otherwise than by a close
  std::size_t running = 0;             ///< calls that run now
  std::size_t connections = 0;         ///< connections that are served now
};

namespace detail {
class server_core;
}

/// A handler's view of its call, and of the memory that comes with the call. Lives until the
/// handler has ended. The server makes it.
class CORDMA_EXPORT server_call {
 public:
  explicit server_call(detail::incoming_call& call) noexcept : call_{call} {}
  server_call(const server_call&) = delete;
  server_call& operator=(const server_call&) = delete;

  /// The connection, for reading the source and writing the sink.
  [[nodiscard]] cordma::connection& connection() noexcept;
  /// Time until the call's deadline; `duration::max()` when the caller named none.
  [[nodiscard]] duration remaining() const noexcept;
  /// The context for calls that the handler makes (`call_options::trace`): of the server's span
  /// or, without a tracer, of the client's. None: the client sent none.
  [[nodiscard]] trace_context trace() const noexcept;
  [[nodiscard]] bool has_source() const noexcept;
  [[nodiscard]] bool has_sink() const noexcept;
  /// The caller's memory, to be read (`source`) or written (`sink`). Each can be had once, and
  /// costs no message. It goes back with the answer, or when the caller gives up: then its slices
  /// are refused (errc::lease_ended).
  /// \errors errc::refused: the caller has lent none, or has given up, or it was asked for before;
  ///   why the connection ended.
  remote_mr source();
  remote_mr sink();
  /// Reads the source into registered memory of the connection.
  /// \errors as `source`; errc::wrong_length: the source is longer than `bytes_max`; those of
  /// `read`
  ///   and of the allocator.
  task<local_mr> fetch_source(std::size_t bytes_max);

 private:
  detail::incoming_call& call_;
};

/// Runs handlers for the calls of any number of connections, each as a task of its own, as soon as
/// the call comes. Not movable; must outlive its `serve` tasks. \thread one executor's. A program
/// with more than one core has a server on each (`runtime_group`), which share nothing.
class CORDMA_EXPORT server {
 public:
  /// \errors errc::limit_exceeded: an option. With a tracer also an errno of getrandom(2).
  explicit server(const server_options& options = {});
  server(const server&) = delete;
  server& operator=(const server&) = delete;
  ~server();

  /// Registers who answers `M`, before the first `serve`. `handler` is called for each call, with a
  /// `M::request` and, if it takes one, a `server_call&`, and gives a `task<M::reply>`. It may be a
  /// coroutine lambda with captures: the server keeps it. A request that is a view lives until the
  /// handler has ended. A reply that is a view must view the request, or what outlives the call.
  ///
  /// The task inherits a stop, which comes with the call's deadline, when the caller gives up, when
  /// the connection ends, and when `serve` is stopped. An exception reaches the caller as
  /// errc::handler_failed, with its text.
  /// \errors errc::limit_exceeded: another method of the same name, or whose name has the same id;
  ///   both are named.
  template <detail::any_method M, class Handler>
  void handle(Handler handler) {
    constexpr bool gives_task = detail::handles<Handler, M>;
    static_assert(gives_task,
                  "a handler of M gives a cordma::task<M::reply> from an M::request, and takes a "
                  "server_call& besides if it likes");
    if constexpr (gives_task)
      add(std::make_unique<detail::typed_method<M, Handler>>(std::move(handler)));
  }

  /// Answers calls of a connection on which nothing was sent or received. Ends when the connection
  /// has ended, or the server drains, and the handlers have ended. A stop is passed on to the
  /// handlers, and then the connection is dropped.
  /// \errors when the client has not closed the connection: why it was lost. What `message_stream`
  ///   throws.
  task<> serve(connection conn);
  /// Accepts and serves connections until it is stopped, or `acceptor` is closed, as by a drain of
  /// the server. A connection that is lost is counted, and ends nothing. At most 2^20 at once;
  /// others wait to be accepted. \errors what `listener::accept` throws, but `closed`.
  task<> serve(listener& acceptor);

  /// Takes no more calls: they fail with errc::shutting_down. Closes the listeners. Running calls
  /// may end within `drain_timeout`; then they are stopped. A connection is closed when it has no
  /// calls left. A connection that comes later is closed after its first call has failed, or after
  /// `drain_timeout`. Ends when all connections are closed.
  task<> drain();

  [[nodiscard]] const server_counters& counters() const noexcept;
  /// Sums over all connections, present and past.
  [[nodiscard]] stream_counters streams() const noexcept;

 private:
  void add(std::unique_ptr<detail::served_method> m);
  std::unique_ptr<detail::server_core> core_;
};

}  // namespace cordma::rpc
