#pragma once

#include <cordma/detail/base/assert.hpp>
#include <cordma/detail/base/export.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <type_traits>

namespace cordma::rpc::detail {

/// \errors errc::bad_message
CORDMA_EXPORT [[noreturn]] void throw_bad_message(const char* why);
/// Checks the length of an encoded value. \errors errc::bad_message: not that of its type.
CORDMA_EXPORT void check_length(std::size_t length, std::size_t expected);
/// A length as protobuf takes it. \errors errc::limit_exceeded: above INT_MAX.
CORDMA_EXPORT int protobuf_length(std::size_t length);
/// \errors errc::bad_message
CORDMA_EXPORT void check_serialized(bool is_serialized, std::size_t length);
CORDMA_EXPORT void check_parsed(bool is_parsed, std::size_t length);

inline void put(std::span<const std::byte> value, std::span<std::byte> out) noexcept {
  CORDMA_ASSERT(out.size() == value.size(), "a value is encoded into as many bytes as it takes");
  std::ranges::copy(value, out.begin());
}

/// The codec of a T that owns or views a row of bytes or characters.
template <class T>
struct row_codec {
  static std::size_t size(const T& value) noexcept { return value.size(); }
  static std::span<const std::byte> lies(const T& value) noexcept {
    return std::as_bytes(std::span{value});
  }
  static void encode(const T& value, std::span<std::byte> out) noexcept {
    put(std::as_bytes(std::span{value}), out);
  }
  static T decode(std::span<const std::byte> in) {
    const auto* const first = reinterpret_cast<const typename T::value_type*>(in.data());
    return T(first, first + in.size());
  }
};

/// True if bits that are all set survive a conversion to T. Padding loses them, and so does a bool.
/// For pointers, references and unions this is no constant expression. (signed char, because
/// unsigned ones may be indeterminate.)
template <class T>
constexpr bool keeps_all_bits() {
  std::array<signed char, sizeof(T)> bits;
  bits.fill(-1);
  return std::bit_cast<std::array<signed char, sizeof(T)>>(std::bit_cast<T>(bits)) == bits;
}

template <class T>
concept all_bits = std::is_trivially_copyable_v<T> && !std::is_array_v<T> && !std::is_const_v<T> &&
                   requires { requires std::bool_constant<keeps_all_bits<T>()>::value; };

}  // namespace cordma::rpc::detail
