#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>

namespace cordma::detail {

/// Returns the character if it is printable ASCII; others could steer a terminal, or begin a line.
constexpr char printable(char c) noexcept { return c >= ' ' && c <= '~' ? c : '?'; }

/// Writes printable text into the caller's bytes. Text that does not fit ends in "...".
class text_writer {
 public:
  explicit text_writer(std::span<char> into) noexcept : into_{into} {}

  void put(std::string_view text) noexcept {
    const std::size_t room = into_.size() - size_;
    const std::size_t count = std::min(room, text.size());
    std::transform(text.begin(), text.begin() + std::ptrdiff_t(count),
                   into_.begin() + std::ptrdiff_t(size_), printable);
    size_ += count;
    if (count < text.size()) std::fill_n(into_.end() - dots(), dots(), '.');
  }
  [[nodiscard]] std::string_view text() const noexcept { return {into_.data(), size_}; }

 private:
  [[nodiscard]] std::ptrdiff_t dots() const noexcept {
    return std::ptrdiff_t(std::min<std::size_t>(into_.size(), 3));
  }
  std::span<char> into_;
  std::size_t size_ = 0;
};

}  // namespace cordma::detail
