#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace cordma {

/// Records which pages of a chunk are in use. Indices and counts are pages. Callers lock.
class page_bitmap {
 public:
  static constexpr std::size_t none = ~std::size_t{0};

  /// Makes a bitmap of free pages.
  explicit page_bitmap(std::size_t pages);

  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t free() const noexcept { return free_; }

  /// Takes the first row of `count` free pages whose start is a multiple of `alignment` (a power of
  /// two). Returns `none` if there is none. \cost one step per 64 pages.
  std::size_t take(std::size_t count, std::size_t alignment) noexcept;
  /// Frees pages, all of which are in use.
  void give_back(std::size_t first, std::size_t count) noexcept;

 private:
  static constexpr std::size_t word_bits = 64;
  /// Returns the first page at or after `from` that is in use (or free); `size_` if there is none.
  [[nodiscard]] std::size_t next(std::size_t from, bool in_use) const noexcept;
  void flip(std::size_t first, std::size_t count) noexcept;

  std::size_t size_;
  std::size_t free_;
  std::size_t first_free_ = 0;              ///< no earlier page is free
  std::unique_ptr<std::uint64_t[]> words_;  ///< 1: in use
};

}  // namespace cordma
