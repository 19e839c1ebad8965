#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cordma {

/// Returns the CRC-32 of IEEE 802.3. \cost  8 steps a byte: for a few hundred bytes.
constexpr std::uint32_t crc32(std::span<const std::byte> bytes) noexcept {
  std::uint32_t crc = ~0u;
  for (const std::byte b : bytes) {
    crc ^= std::uint32_t(b);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0u);
  }
  return ~crc;
}

}  // namespace cordma
