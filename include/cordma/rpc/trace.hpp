#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/base/export.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace cordma {

class socket_address;

}  // namespace cordma

namespace cordma::rpc {

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

}  // namespace cordma::rpc
