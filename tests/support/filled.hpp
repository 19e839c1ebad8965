#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace cordma::test {

/// The eight bytes at offset `at` of what is filled with `key`.
constexpr std::uint64_t filled_word(std::uint64_t key, std::size_t at) noexcept {
  return (key + at) * 0x9e37'79b9'7f4a'7c15;
}

/// Bytes that tell whose and where they are.
inline void fill(std::span<std::byte> out, std::uint64_t key) noexcept {
  std::size_t at = 0;
  for (std::uint64_t word = 0; out.size() - at >= sizeof word; at += sizeof word) {
    word = filled_word(key, at);
    std::memcpy(out.data() + at, &word, sizeof word);
  }
  const std::uint64_t last = filled_word(key, at);
  if (at < out.size()) std::memcpy(out.data() + at, &last, out.size() - at);
}

/// The offset of the first word that `fill` would have written otherwise; the size: none.
inline std::size_t first_unlike(std::span<const std::byte> in, std::uint64_t key) noexcept {
  std::size_t at = 0;
  for (std::uint64_t word = 0; in.size() - at >= sizeof word; at += sizeof word) {
    std::memcpy(&word, in.data() + at, sizeof word);
    if (word != filled_word(key, at)) return at;
  }
  const std::uint64_t last = filled_word(key, at);
  if (at < in.size() && std::memcmp(in.data() + at, &last, in.size() - at) != 0) return at;
  return in.size();
}
inline bool is_filled(std::span<const std::byte> in, std::uint64_t key) noexcept {
  return first_unlike(in, key) == in.size();
}

}  // namespace cordma::test
