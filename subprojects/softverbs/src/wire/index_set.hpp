#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace softverbs {

inline constexpr std::uint32_t indices_max = 1u << 14;  ///< QPs of a process

/// A set of QP indices. Allocates nothing, and finds the next member in a few steps. Callers lock.
class index_set {
 public:
  static constexpr std::uint32_t none = indices_max;

  [[nodiscard]] bool contains(std::uint32_t index) const noexcept {
    return (words_[index / 64] >> (index % 64) & 1) != 0;
  }
  void insert(std::uint32_t index) noexcept {
    words_[index / 64] |= std::uint64_t{1} << (index % 64);
    summary_[index / 4096] |= std::uint64_t{1} << (index / 64 % 64);
  }
  void erase(std::uint32_t index) noexcept {
    words_[index / 64] &= ~(std::uint64_t{1} << (index % 64));
    if (words_[index / 64] == 0) summary_[index / 4096] &= ~(std::uint64_t{1} << (index / 64 % 64));
  }
  [[nodiscard]] bool empty() const noexcept {
    return (summary_[0] | summary_[1] | summary_[2] | summary_[3]) == 0;
  }
  void clear() noexcept { *this = index_set{}; }
  /// Makes all indices members.
  void fill() noexcept {
    words_.fill(~std::uint64_t{0});
    summary_.fill(~std::uint64_t{0});
  }

  /// The first member at or after `from`, without wrapping; `none` if there is none.
  [[nodiscard]] std::uint32_t next(std::uint32_t from) const noexcept {
    if (from >= indices_max) return none;
    if (const std::uint64_t rest = words_[from / 64] >> (from % 64); rest != 0)
      return from + static_cast<std::uint32_t>(std::countr_zero(rest));
    for (std::uint32_t word = from / 64 + 1; word < words_.size();) {
      const std::uint64_t rest = summary_[word / 64] >> (word % 64);
      if (rest == 0) {
        word = (word / 64 + 1) * 64;
        continue;
      }
      word += static_cast<std::uint32_t>(std::countr_zero(rest));
      return word * 64 + static_cast<std::uint32_t>(std::countr_zero(words_[word]));
    }
    return none;
  }
  /// The first member at or after `from`, else the first member; `none` if the set is empty.
  [[nodiscard]] std::uint32_t next_around(std::uint32_t from) const noexcept {
    const std::uint32_t found = next(from);
    return found != none ? found : next(0);
  }

 private:
  std::array<std::uint64_t, indices_max / 64> words_{};
  std::array<std::uint64_t, indices_max / 4096> summary_{};
};

}  // namespace softverbs
