#pragma once

#include <cordma/connection/listener.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/method.hpp>

#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <new>

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
struct incoming_call;
}  // namespace detail

/// What a handler knows of its call, and the memory that comes with it. There until the handler has
/// ended.
class server_call {
 public:
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
  friend struct detail::incoming_call;
  explicit server_call(detail::incoming_call& call) noexcept : call_{call} {}
  detail::incoming_call& call_;
};

namespace detail {

/// The part of a running call that knows its types. Lies in the call, if it fits there.
class call_body : public frame_cache::recycled {
 public:
  virtual ~call_body() = default;
  /// Decodes the request and starts its handler, as an operation. \errors what either throws.
  virtual bool start(std::span<const std::byte> request, server_call& call, waiter& w,
                     const environment& env) = 0;
  /// What the handler gave; lies in this. \errors what the handler threw.
  virtual const encodable_ref& end() = 0;

  bool is_decoded = false;  ///< what it throws is the handler's
};

/// In a call; enough for bytes and small structs.
struct alignas(std::max_align_t) call_body_room {
  std::array<std::byte, 192> bytes;
};

struct call_body_deleter {
  void operator()(call_body* b) const noexcept {
    if (is_in_room) {
      b->~call_body();
    } else {
      delete b;
    }
  }
  bool is_in_room = false;
};
using call_body_ptr = std::unique_ptr<call_body, call_body_deleter>;

struct served_method {
  served_method(std::uint64_t i, std::string_view n) noexcept : id{i}, name{n} {}
  served_method(const served_method&) = delete;
  served_method& operator=(const served_method&) = delete;
  virtual ~served_method() = default;
  virtual call_body_ptr begin(call_body_room& room) = 0;
  const std::uint64_t id;
  const std::string_view name;
};

template <any_method M, class Handler>
class typed_method final : public served_method {
 public:
  explicit typed_method(Handler handler)
      : served_method{M::id, M::name}, handler_{std::move(handler)} {}
  call_body_ptr begin(call_body_room& room) override {
    constexpr bool fits = sizeof(body) <= sizeof room && alignof(body) <= alignof(call_body_room);
    if constexpr (fits) {
      return {::new (&room) body{handler_}, {.is_in_room = true}};
    } else {
      return {new body{handler_}, {}};
    }
  }

 private:
  class body final : public call_body {
   public:
    explicit body(Handler& handler) noexcept : handler_{handler} {}
    bool start(std::span<const std::byte> request, server_call& call, waiter& w,
               const environment& env) override {
      request_.emplace(codec<typename M::request>::decode(request));
      is_decoded = true;
      if constexpr (std::invocable<Handler&, typename M::request, server_call&>) {
        running_.emplace(handler_(std::move(*request_), call));
      } else {
        running_.emplace(handler_(std::move(*request_)));
      }
      return running_->start(w, env);
    }
    const encodable_ref& end() override {
      reply_.emplace(running_->take());
      return reply_bytes_.emplace(*reply_);
    }

   private:
    Handler& handler_;
    std::optional<typename M::request> request_;
    std::optional<task<typename M::reply>> running_;
    std::optional<typename M::reply> reply_;
    std::optional<encodable_ref> reply_bytes_;
  };

  Handler handler_;
};

template <class Handler, class M>
concept handles = requires(Handler& h, typename M::request request, server_call& call) {
  { h(std::move(request), call) } -> std::same_as<task<typename M::reply>>;
} || requires(Handler& h, typename M::request request) {
  { h(std::move(request)) } -> std::same_as<task<typename M::reply>>;
};

}  // namespace detail

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
