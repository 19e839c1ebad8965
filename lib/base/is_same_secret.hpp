#pragma once

#include <cstddef>
#include <span>

namespace cordma {

/// Compares in a time that does not tell where the first difference is.
inline bool is_same_secret(std::span<const std::byte> a, std::span<const std::byte> b) noexcept {
  if (a.size() != b.size()) return false;
  volatile unsigned char difference = 0;  // A compiler may not leave the loop early.
  for (std::size_t i = 0; i < a.size(); ++i)
    difference = static_cast<unsigned char>(difference | std::to_integer<unsigned>(a[i] ^ b[i]));
  return difference == 0;
}

}  // namespace cordma
