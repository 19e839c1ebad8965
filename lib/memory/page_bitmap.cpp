#include "page_bitmap.hpp"

#include <cordma/detail/base/assert.hpp>

#include <algorithm>
#include <bit>

namespace cordma {
page_bitmap::page_bitmap(std::size_t pages)
    : size_{pages},
      free_{pages},
      words_{std::make_unique<std::uint64_t[]>((pages + word_bits - 1) / word_bits)} {}

std::size_t page_bitmap::take(std::size_t count, std::size_t alignment) noexcept {
  if (count > free_) return none;
  first_free_ = next(first_free_, false);
  for (std::size_t first = first_free_; first + count <= size_;) {
    first = (first + alignment - 1) & ~(alignment - 1);
    const std::size_t end = next(first, true);
    if (first + count <= end) {
      flip(first, count);
      free_ -= count;
      return first;
    }
    first = next(end, false);
  }
  return none;
}

void page_bitmap::give_back(std::size_t first, std::size_t count) noexcept {
  CORDMA_ASSERT(first + count <= size_ && next(first, false) >= first + count,
                "pages given back that are free");
  flip(first, count);
  free_ += count;
  first_free_ = std::min(first_free_, first);
}

std::size_t page_bitmap::next(std::size_t from, bool in_use) const noexcept {
  while (from < size_) {
    const std::uint64_t word = words_[from / word_bits];
    const std::uint64_t rest = (in_use ? word : ~word) >> (from % word_bits);
    if (rest != 0) return std::min(from + std::size_t(std::countr_zero(rest)), size_);
    from = (from / word_bits + 1) * word_bits;
  }
  return size_;
}

void page_bitmap::flip(std::size_t first, std::size_t count) noexcept {
  while (count > 0) {
    const std::size_t bit = first % word_bits;
    const std::size_t here = std::min(count, word_bits - bit);
    words_[first / word_bits] ^= (~std::uint64_t{0} >> (word_bits - here)) << bit;
    first += here;
    count -= here;
  }
}

}  // namespace cordma
