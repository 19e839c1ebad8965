#pragma once

#include <cordma/detail/rpc/codec_parts.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <climits>
#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace cordma::rpc {

/// Turns a request or reply into bytes and back. Bytes, text, plain types and protobuf's messages
/// have a codec below. For another type, specialise it where that type is defined:
///
///     template <>
///     struct cordma::rpc::codec<order> {
///       static std::size_t size(const order&);                     // The bytes it takes.
///       static void encode(const order&, std::span<std::byte> out);  // `out` is that long.
///       static order decode(std::span<const std::byte> in);        // Or throws cordma::error.
///     };
///
/// When the bytes lie in memory already, `static std::span<const std::byte> lies(const order&)`
/// saves a copy of them. `encode` must write all of `out`, since all of it is sent. `decode` must
/// trust nothing that the peer sent: it checks lengths against `in.size()`, and throws
/// `errc::bad_message` for bytes that are no `order`. Both sides have the same byte order.
/// \thread any.
template <class T>
struct codec;

/// A type that can be a request or a reply.
template <class T>
concept encodable =
    requires(const T& value, std::span<std::byte> out, std::span<const std::byte> in) {
      { codec<T>::size(value) } -> std::same_as<std::size_t>;
      { codec<T>::encode(value, out) } -> std::same_as<void>;
      { codec<T>::decode(in) } -> std::same_as<T>;
    };

/// An empty request or reply. Like any empty struct, it takes no bytes.
struct nothing {
  friend bool operator==(nothing, nothing) noexcept = default;
};

namespace detail {

/// A type with the functions of protobuf's MessageLite.
template <class T>
concept protobuf_message =
    std::default_initializable<T> &&
    requires(const T& value, T& parsed, void* out, const void* in, int size_bytes) {
      { value.ByteSizeLong() } -> std::same_as<std::size_t>;
      { value.SerializeToArray(out, size_bytes) } -> std::same_as<bool>;
      { parsed.ParseFromArray(in, size_bytes) } -> std::same_as<bool>;
    };

}  // namespace detail

/// True if a trivially copyable T is sent as its bytes in memory. Every bit must be part of a
/// value, and every pattern of bits must be a value. Integers, floating-point numbers and
/// enumerations fulfil that, and so do arrays and structs of them without padding. Padding would
/// leak other contents of our memory. A pointer would leak addresses, and mean nothing to the peer.
/// A peer could make a bool in a struct neither true nor false. The compiler cannot tell for
/// unions, bit-fields, structs without a constexpr constructor and those of hundreds of KiB; g++ 12
/// overlooks pointers in arrays. For such a type that fulfils the rule, say so:
///
///     template <> inline constexpr bool cordma::rpc::is_plain<header> = true;
template <class T>
inline constexpr bool is_plain = std::is_empty_v<T> || detail::all_bits<T>;

// ---- What has a codec ------------------------------------------------------------------------

/// Decodes to a view of the message, valid as long as that.
template <>
struct codec<std::span<const std::byte>> : detail::row_codec<std::span<const std::byte>> {};
template <>
struct codec<std::vector<std::byte>> : detail::row_codec<std::vector<std::byte>> {};
/// Decodes to a view of the message, valid as long as that.
template <>
struct codec<std::string_view> : detail::row_codec<std::string_view> {};
template <>
struct codec<std::string> : detail::row_codec<std::string> {};

/// One byte. \errors errc::bad_message: it is neither 0 nor 1.
template <>
struct codec<bool> {
  static std::size_t size(bool) noexcept { return 1; }
  static void encode(bool value, std::span<std::byte> out) noexcept {
    const auto byte = std::byte(value);
    detail::put({&byte, 1}, out);
  }
  static bool decode(std::span<const std::byte> in) {
    detail::check_length(in.size(), 1);
    if (in[0] > std::byte{1}) detail::throw_bad_message("a bool that is neither 0 nor 1");
    return in[0] == std::byte{1};
  }
};

/// A plain type's bytes in memory. \errors errc::bad_message: another length. Where some values of
/// a member mean nothing (those of an enumeration, say), the program checks it: any may come.
template <class T>
  requires(std::is_trivially_copyable_v<T> && is_plain<T> && !detail::protobuf_message<T>)
struct codec<T> {
  static constexpr std::size_t length = std::is_empty_v<T> ? 0 : sizeof(T);

  static std::size_t size(const T&) noexcept { return length; }
  static std::span<const std::byte> lies(const T& value) noexcept {
    return std::as_bytes(std::span{std::addressof(value), 1}).first(length);
  }
  static void encode(const T& value, std::span<std::byte> out) noexcept {
    detail::put(lies(value), out);
  }
  static T decode(std::span<const std::byte> in) {
    detail::check_length(in.size(), length);
    std::array<std::byte, sizeof(T)> bytes{};
    std::ranges::copy(in, bytes.begin());
    return std::bit_cast<T>(bytes);
  }
};

/// A protobuf message, by its own functions. \errors errc::limit_exceeded: it takes more than
/// INT_MAX
///   bytes. errc::bad_message: it can't be serialized, or parsed; protobuf does not say why.
template <detail::protobuf_message T>
struct codec<T> {
  static std::size_t size(const T& value) {
    const std::size_t length = value.ByteSizeLong();
    detail::protobuf_length(length);
    return length;
  }
  static void encode(const T& value, std::span<std::byte> out) {
    const int length = detail::protobuf_length(out.size());
    detail::check_serialized(value.SerializeToArray(out.data(), length), out.size());
  }
  static T decode(std::span<const std::byte> in) {
    T value;
    detail::check_parsed(in.size() <= INT_MAX && value.ParseFromArray(in.data(), int(in.size())),
                         in.size());
    return value;
  }
};

}  // namespace cordma::rpc
