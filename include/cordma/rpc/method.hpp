#pragma once

#include <cordma/base/time.hpp>
#include <cordma/detail/rpc/encodable_ref.hpp>
#include <cordma/memory/slice.hpp>
#include <cordma/messages/message_stream.hpp>
#include <cordma/rpc/codec.hpp>
#include <cordma/rpc/trace.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>

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
