#pragma once

#include <endian.h>

#include <concepts>
#include <cstddef>
#include <cstring>

/// Numbers in wire order, the least significant byte first. The place may be misaligned.
namespace cordma::little_endian {

template <std::unsigned_integral T>
T swapped(T value) noexcept {
  if constexpr (sizeof(T) == 8) value = T(htole64(value));
  if constexpr (sizeof(T) == 4) value = T(htole32(value));
  if constexpr (sizeof(T) == 2) value = T(htole16(value));
  return value;
}

template <std::unsigned_integral T>
void put(std::byte* out, T value) noexcept {
  value = swapped(value);
  std::memcpy(out, &value, sizeof value);
}

template <std::unsigned_integral T>
T get(const std::byte* in) noexcept {
  T value;
  std::memcpy(&value, in, sizeof value);
  return swapped(value);  // Swapping is its own inverse.
}

}  // namespace cordma::little_endian
