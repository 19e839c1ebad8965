#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace cordma::sim::detail {

/// Set of the states that worlds came to: pairs of events in a row on one host, with the sizes of
/// their numbers. Two states may share a bit.
class coverage {
 public:
  void mark(std::uint64_t state) noexcept {
    const std::uint64_t bit = (state * 0x9e3779b97f4a7c15) >> (64 - bits_log2);
    words_[bit / 64] |= std::uint64_t{1} << bit % 64;
  }
  void add(const coverage& other) noexcept {
    for (std::size_t n = 0; n < words_.size(); ++n) words_[n] |= other.words_[n];
  }
  [[nodiscard]] std::size_t count() const noexcept {
    std::size_t set = 0;
    for (const std::uint64_t word : words_) set += std::size_t(std::popcount(word));
    return set;
  }

 private:
  static constexpr unsigned bits_log2 = 20;
  std::array<std::uint64_t, (std::size_t{1} << bits_log2) / 64> words_{};
};

}  // namespace cordma::sim::detail
