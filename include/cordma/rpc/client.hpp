#pragma once

#include <cordma/detail/base/callback.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/method.hpp>

#include <chrono>
#include <utility>

namespace cordma {

class executor;

}  // namespace cordma

namespace cordma::rpc {

struct call_options {
  /// From now on; 0: the client's.
  time_span deadline{};
  /// Memory that the handler may read one-sidedly, without a copy, while the call runs. It must
  /// not change meanwhile.
  const_local_mr_slice source{};
  /// Memory that the handler may write one-sidedly. Whoever looks at it before the call has ended
  /// may see a part.
  local_mr_slice sink{};
};

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

namespace detail {

class client_core;
struct call_slot;

/// Keeps a client's inside: the client and its calls do.
class client_ref {
 public:
  client_ref() noexcept = default;
  explicit client_ref(client_core& c) noexcept;
  client_ref(client_ref&& other) noexcept : core_{std::exchange(other.core_, nullptr)} {}
  client_ref& operator=(client_ref&& other) noexcept {
    const client_ref gone = std::move(*this);
    core_ = std::exchange(other.core_, nullptr);
    return *this;
  }
  ~client_ref();
  client_core* operator->() const noexcept { return core_; }
  [[nodiscard]] client_core* get() const noexcept { return core_; }

 private:
  client_core* core_ = nullptr;
};

/// What is to be called, without its types.
struct call_target {
  std::uint64_t id;
  const char* name;
  bool is_idempotent;
};

/// A call without its types.
class call_handle {
 public:
  call_handle(call_handle&& other) noexcept  // Only before it starts.
      : core_{std::move(other.core_)},
        target_{other.target_},
        options_{other.options_},
        slot_{std::exchange(other.slot_, nullptr)} {}
  call_handle& operator=(call_handle&&) = delete;
  ~call_handle();
  [[nodiscard]] scheduler* own_scheduler() const noexcept;
  [[nodiscard]] bool failed() const noexcept;

 protected:
  /// `options`: none, or `call_options`.
  template <class... Options>
  call_handle(client_core& core, const call_target& target, const Options&... options) noexcept
      : core_{core}, target_{target}, options_{options...} {}
  /// What `encoded_` refers to is there until the call has ended.
  bool begin(waiter& w, const environment& env) noexcept;
  bool fail_to_encode(std::exception_ptr why) noexcept;
  /// The message with the reply. \errors why there is none.
  stream_message end();
  static std::span<const std::byte> reply_in(const stream_message& m) noexcept;

  std::optional<encodable_ref> encoded_;

 private:
  client_ref core_;
  const call_target& target_;
  std::optional<call_options> options_;  // Mostly none: ten words less to be made.
  call_slot* slot_ = nullptr;
  std::exception_ptr why_not_encoded_;
};

}  // namespace detail

/// A reply that is a view, with the message that it views: its buffer is for the next message when
/// this goes. Keep few of them, and not for long.
template <class View>
class viewed {
 public:
  viewed(stream_message&& message, View value) noexcept
      : message_{std::move(message)}, value_{value} {}
  const View& operator*() const noexcept { return value_; }
  const View* operator->() const noexcept { return &value_; }

 private:
  stream_message message_;
  View value_;
};

/// A call, from when it is awaited to its reply.
template <any_method M>
class [[nodiscard]] call_op final : public operation_base<call_op<M>>, public detail::call_handle {
  using reply = typename M::reply;

 public:
  using value_type = std::conditional_t<detail::is_view<reply>, viewed<reply>, reply>;

  template <class... Options>
  call_op(detail::client_core& core, typename M::request request, const Options&... options)
      : call_handle{core, target, options...}, request_{std::move(request)} {}

  bool start(waiter& w, const environment& env) noexcept {
    try {
      encoded_.emplace(request_);
    } catch (...) {
      return fail_to_encode(std::current_exception());
    }
    return begin(w, env);
  }
  value_type take() {
    stream_message message = end();
    reply value = codec<reply>::decode(reply_in(message));
    if constexpr (detail::is_view<reply>) {
      return {std::move(message), value};
    } else {
      return value;
    }
  }
  result<value_type> take_result() { return cordma::detail::taken<value_type>(*this); }

 private:
  static constexpr detail::call_target target{M::id, M::name.data(), M::is_idempotent};
  typename M::request request_;
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
  call_op<M> call(typename M::request request, const call_options& options) {
    return call_op<M>{core(), std::move(request), options};
  }
  template <any_method M>
  call_op<M> call(typename M::request request = {}) {
    return call_op<M>{core(), std::move(request)};
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
