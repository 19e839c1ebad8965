#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/base/export.hpp>
#include <cordma/detail/rpc/encodable_ref.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/codec.hpp>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace cordma {

class socket_address;

}  // namespace cordma

namespace cordma::rpc {

namespace detail {

/// The name of a method, as a template argument: "store.get".
template <std::size_t Size>
struct method_name {
  constexpr method_name(const char (&literal)[Size]) noexcept {  // NOLINT: a literal is one.
    for (std::size_t i = 0; i < Size; ++i) text[i] = literal[i];
  }
  [[nodiscard]] constexpr std::string_view view() const noexcept { return {text, Size - 1}; }

  char text[Size]{};  // Public, as template arguments are.
};

/// A method's number on the wire: the name's FNV-1a hash of 64 bits (draft-eastlake-fnv). It
/// depends on nothing but the name.
constexpr std::uint64_t method_id(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace detail

/// A method: its name, its request and its reply. Both sides declare it alike:
///
///     struct get : cordma::rpc::method<"store.get", key, std::string> {};
///
/// `static constexpr bool is_idempotent = true;` in it says that a call may run more than once. A
/// client that reconnects then repeats calls that may have run.
///
/// The name identifies the method: give a method with another request or reply another name. Two
/// names can have one id: `server::handle` refuses the second.
template <detail::method_name Name, class Request = nothing, class Reply = nothing>
struct method {
  static_assert(!Name.view().empty(), "a method has a name");
  static_assert(detail::check_encodable<Request>() && detail::check_encodable<Reply>());

  using request = Request;
  using reply = Reply;
  static constexpr std::string_view name = Name.view();
  static constexpr std::uint64_t id = detail::method_id(name);
  static constexpr bool is_idempotent = false;
};

namespace detail {

/// A `method`, or a type that is derived from one.
template <class M>
concept any_method = encodable<typename M::request> && encodable<typename M::reply> && requires {
  { M::name } -> std::convertible_to<std::string_view>;
  { M::id } -> std::convertible_to<std::uint64_t>;
};

}  // namespace detail

/// Names a span and the trace to which the span belongs, as W3C Trace Context (level 1) does. A
/// client sends one with each call that has one: the server's span becomes a child of that.
struct CORDMA_EXPORT trace_context {
  /// A bit of `flags`: the trace is recorded.
  static constexpr std::uint8_t sampled = 1;

  std::array<std::byte, 16> trace_id{};
  std::array<std::byte, 8> span_id{};
  std::uint8_t flags = 0;

  /// Reads the value of a `traceparent` header: version 00, or a later one that begins alike.
  /// Returns none for any other text, with which a trace begins anew. Of the flags remain
  /// `sampled` and, of version 00, `random` (level 2).
  [[nodiscard]] static trace_context from_traceparent(std::string_view text) noexcept;
  /// Returns the value of a `traceparent` header of version 00; empty for none.
  [[nodiscard]] std::string to_traceparent() const;
  /// Makes the context of a span below this one, with the same trace and flags. Below none, makes
  /// that of a new trace, which is sampled. \errors an errno of getrandom(2). \cost two system
  /// calls at most.
  [[nodiscard]] trace_context child() const;
  /// Returns true if an id is all zeros: such a context names nothing.
  [[nodiscard]] bool is_none() const noexcept {
    using words = std::array<std::uint64_t, 2>;
    return std::bit_cast<std::uint64_t>(span_id) == 0 || std::bit_cast<words>(trace_id) == words{};
  }
  /// Returns true if this is not none, and the trace is recorded.
  [[nodiscard]] bool is_sampled() const noexcept { return (flags & sampled) != 0 && !is_none(); }
  [[nodiscard]] bool operator==(const trace_context&) const noexcept = default;
};

/// Takes the spans of calls: an exporter, or what leads to one. `client_options::tracer` and
/// `server_options::tracer` name it. It outlives the clients, and the tasks that serve.
///
/// Both functions are called in the middle of the library's work. They use neither the client nor
/// the server, and wait for nothing.
/// \thread that of the client or server; one tracer for several threads is called by all of them.
class CORDMA_EXPORT tracer {
 public:
  /// The side of a call to which a span belongs. The values are OTLP's (`Span.SpanKind`).
  enum class span_kind : std::uint8_t { server = 2, client = 3 };

  /// A call at its client or at its server. The views live until `end` returns.
  struct span {
    span_kind kind = span_kind::client;
    trace_context context{};  ///< the span's own ids, and the trace's flags
    /// All zeros: the span is the first of its trace.
    std::array<std::byte, 8> parent_span_id{};
    /// The method's name. Empty: the server does not have the method.
    std::string_view method{};
    /// The other end of the connection. Null: no connection was made. A client's `begin` always
    /// finds null.
    const socket_address* peer = nullptr;
    /// On the executor's clock, which is no calendar's. A client's span begins when the call is
    /// awaited, and ends when the call does. A server's begins when the request has come, and ends
    /// when the answer is posted.
    time_point start{};
    time_point end{};
    /// No error: there is a reply. At the client ECANCELED when the program stopped or dropped the
    /// call, else the code of the call's failure. At the server the `errc` that the client is told;
    /// when it could be told nothing, why the connection ended, or errc::closed.
    std::error_code outcome{};
    std::string_view text{};  ///< the failure's detail
    unsigned repeats = 0;     ///< how often the client sent the call again, on another connection
    void* data = nullptr;     ///< the tracer's own
  };

  virtual ~tracer() = default;
  /// A call begins. The span's ids are made, and `context.flags` is the parent's; a new trace is
  /// sampled. The function may change all of `context`, above all `trace_context::sampled`. The
  /// context goes with the call either way, unless the function makes it none.
  /// \cost in all about two readings of the clock for a call with a tracer, and no allocation.
  virtual void begin(span& begun) noexcept = 0;
  /// A call has ended whose span is sampled. Called once for each of these.
  virtual void end(const span& ended) noexcept = 0;
};

struct call_options {
  /// Counted from the start of the call. None: `client_options::call_timeout`.
  std::optional<time_span> timeout{};
  /// Memory that the handler may read one-sidedly, without a copy, while the call runs. It must
  /// not change meanwhile.
  const_local_mr_slice source{};
  /// Memory that the handler may write one-sidedly. Before the call has ended, a part of it may
  /// have been written.
  local_mr_slice sink{};
  /// The span on whose behalf the program calls, such as `server_call::trace`. None: a client with
  /// a tracer begins a new trace. A client without a tracer sends this context as it is.
  trace_context trace{};
};

/// A reply that is a view, and the message that it views. The message occupies a receive buffer
/// until this is destroyed: keep few of them, and not for long.
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

}  // namespace cordma::rpc
