#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace cordma {

/// At most `Capacity` bytes of text kept in place: trivially copyable and never allocating, so that
/// a `failure` can carry its explanation. Text that does not fit ends in "...".
template <std::size_t Capacity>
class fixed_text {
  static_assert(Capacity >= 4 && Capacity <= UINT16_MAX);

 public:
  constexpr fixed_text() noexcept = default;
  constexpr fixed_text(std::string_view text) noexcept {  // NOLINT: text converts implicitly.
    const bool fits = text.size() <= Capacity;
    size_ = static_cast<std::uint16_t>(fits ? text.size() : Capacity);
    text.copy(bytes_.data(), size_);
    if (!fits) std::string_view{"..."}.copy(bytes_.data() + Capacity - 3, 3);
  }
  constexpr fixed_text(const char* text) noexcept : fixed_text{std::string_view{text}} {}
  constexpr fixed_text(const std::string& text) noexcept : fixed_text{std::string_view{text}} {}

  [[nodiscard]] constexpr std::string_view view() const noexcept { return {bytes_.data(), size_}; }
  [[nodiscard]] constexpr bool empty() const noexcept { return size_ == 0; }

 private:
  std::uint16_t size_ = 0;
  std::array<char, Capacity> bytes_;  // Only the first `size_` bytes are ever read.
};

}  // namespace cordma
