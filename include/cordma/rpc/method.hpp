#pragma once

#include <cordma/detail/rpc/encodable_ref.hpp>
#include <cordma/rpc/codec.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

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

/// A `method`, or a type that is derived from one.
template <class M>
concept any_method = encodable<typename M::request> && encodable<typename M::reply> && requires {
  { M::name } -> std::convertible_to<std::string_view>;
  { M::id } -> std::convertible_to<std::uint64_t>;
};

}  // namespace cordma::rpc
