#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

/// CRC-64/XZ (ECMA-182, reflected): finds what chance makes of bytes, not what malice does.
class crc64 {
 public:
  constexpr crc64& add(std::span<const std::byte> bytes) noexcept {
    for (const std::byte b : bytes)
      state_ = table[std::uint8_t(state_) ^ std::uint8_t(b)] ^ (state_ >> 8);
    return *this;
  }
  [[nodiscard]] constexpr std::uint64_t value() const noexcept { return ~state_; }

 private:
  static constexpr std::array<std::uint64_t, 256> table = [] {
    std::array<std::uint64_t, 256> of_byte{};
    for (std::uint64_t i = 0; i < of_byte.size(); ++i) {
      of_byte[i] = i;
      for (int bit = 0; bit < 8; ++bit) {
        of_byte[i] = (of_byte[i] >> 1) ^ (of_byte[i] % 2 != 0 ? 0xc96c5795d7870f42 : 0);
      }
    }
    return of_byte;
  }();

  std::uint64_t state_ = ~std::uint64_t{0};
};

// The catalogue's check value: of the digits from 1 to 9.
static_assert([] {
  std::array<std::byte, 9> digits{};
  for (std::size_t i = 0; i < digits.size(); ++i) digits[i] = std::byte('1' + i);
  return crc64{}.add(digits).value() == 0x995dc9bbdf1939fa;
}());
