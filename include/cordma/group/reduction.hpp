#pragma once

#include <concepts>
#include <cstdint>

namespace cordma {

/// Operations that a group knows, on integers of 8 to 64 bits, float and double. Integers wrap
/// around. Bit operations are for integers.
enum class reduction : std::uint8_t { sum, product, min, max, bit_and, bit_or, bit_xor };

namespace detail {

enum class element_type : std::uint8_t {
  int8,
  int16,
  int32,
  int64,
  uint8,
  uint16,
  uint32,
  uint64,
  float32,
  float64,
};

/// A type of which a group knows the operations.
template <class T>
concept reducible = (std::integral<T> && !std::same_as<T, bool> && sizeof(T) <= 8) ||
                    std::same_as<T, float> || std::same_as<T, double>;

template <reducible T>
constexpr element_type element_type_of() noexcept {
  if constexpr (std::same_as<T, float>) return element_type::float32;
  if constexpr (std::same_as<T, double>) return element_type::float64;
  const element_type first = std::signed_integral<T> ? element_type::int8 : element_type::uint8;
  constexpr int power = sizeof(T) == 1 ? 0 : sizeof(T) == 2 ? 1 : sizeof(T) == 4 ? 2 : 3;
  return element_type(int(first) + power);
}

}  // namespace detail
}  // namespace cordma
