#pragma once

#include <cordma/rpc/codec.hpp>

#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

namespace cordma::rpc::detail {

/// Explains in words why a type is no request or reply.
template <class T>
constexpr bool check_encodable() {
  static_assert(!std::is_void_v<T>,
                "for a request or reply that says nothing: cordma::rpc::nothing");
  static_assert(!std::is_reference_v<T> && !std::is_const_v<T>,
                "a request or reply is a value: neither a reference nor const");
  static_assert(!std::is_trivially_copyable_v<T> || encodable<T>,
                "this type may have padding, a pointer, a bool or a union, which are not sent as "
                "they are: name the padding, use std::uint8_t, write a cordma::rpc::codec<T>, or "
                "see cordma::rpc::is_plain");
  static_assert(
      encodable<T>,
      "a request or reply is bytes, text, a trivially copyable struct, a protobuf message "
      "or a type with a cordma::rpc::codec<T>: size, encode and decode");
  return true;
}

/// A view of a request or reply that is to be sent, without its type.
struct encodable_ref {
  std::size_t size_bytes;
  const std::byte* lies_at = nullptr;  ///< the bytes; null: `encode` makes them
  const void* value;
  void (*encode)(const void* value, std::span<std::byte> out);

  template <encodable T>
  explicit encodable_ref(const T& v)
      : size_bytes{codec<T>::size(v)},
        value{&v},
        encode{[](const void* t, std::span<std::byte> out) {
          codec<T>::encode(*static_cast<const T*>(t), out);
        }} {
    if constexpr (requires { codec<T>::lies(v); }) lies_at = codec<T>::lies(v).data();
  }
};

/// True if values of T view the message that they were decoded from.
template <class T>
inline constexpr bool is_view =
    std::is_same_v<T, std::span<const std::byte>> || std::is_same_v<T, std::string_view>;

}  // namespace cordma::rpc::detail
