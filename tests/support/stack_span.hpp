#pragma once

#include <algorithm>
#include <cstdint>

namespace support {

/// How far apart the stack was at the places that called `mark`.
class stack_span {
 public:
  [[gnu::noinline]] void mark() noexcept {
    const auto here = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    low_ = std::min(low_, here);
    high_ = std::max(high_, here);
  }
  [[nodiscard]] std::uintptr_t bytes() const noexcept { return high_ - low_; }

 private:
  std::uintptr_t low_ = UINTPTR_MAX;
  std::uintptr_t high_ = 0;
};

/// More than one resume takes at -O0 under a sanitizer, less than a hundred do.
inline constexpr std::uintptr_t stack_span_max = 8 * 1024;

}  // namespace support
