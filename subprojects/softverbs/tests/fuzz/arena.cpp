#include "fuzz/arena.hpp"

#include "fuzz/script.hpp"

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace softverbs::fuzz {

namespace {

/// Never in this program's bytes as a whole, so the fuzzer's look at comparisons cannot learn it.
std::uint64_t secret_word() noexcept {
  static const std::uint64_t word = [] {
    volatile std::uint64_t seed = 0x9e37'79b9'7f4a'7c15;
    return (seed * 0xbf58'476d'1ce4'e5b9) ^ (seed >> 27);
  }();
  return word;
}

void fill(std::byte* at, std::size_t from, std::size_t to, arena::filled with) noexcept {
  const std::uint64_t word = secret_word();
  for (std::size_t i = from; i < to; ++i)
    at[i] = with == arena::filled::secret ? static_cast<std::byte>(word >> (i % 8 * 8))
                                          : std::byte{0x11};
}

constexpr std::size_t canary_bytes = 777;  // odd, so that zones begin and end anywhere in a page

}  // namespace

arena::arena() : used_{canary_bytes}, image_(size), free_(size) {
  void* destination =
      ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  must(destination != MAP_FAILED, "memory for the arena");
  base_ = static_cast<std::byte*>(destination);
  fill(base_, 0, size, filled::secret);
  std::copy_n(base_, size, image_.data());
  find_fixed();
}

arena::zone arena::add(std::size_t bytes, filled with, bool writable) {
  const std::size_t from = (used_ + 7) / 8 * 8;
  must(from + bytes + canary_bytes <= size, "the arena is large enough");
  used_ = from + bytes + canary_bytes;
  fill(base_, from, from + bytes, with);
  std::copy_n(base_ + from, bytes, image_.data() + from);
  if (writable) make_writable(base_ + from, bytes, with);
  return {base_ + from, bytes};
}

void arena::make_writable(std::byte* at, std::size_t bytes, filled with) {
  const auto from = static_cast<std::size_t>(at - base_);
  fill(base_, from, from + bytes, with);
  std::fill_n(free_.data() + from, bytes, std::uint8_t{1});
  find_fixed();
}

void arena::find_fixed() {
  fixed_.clear();
  for (std::size_t i = 0; i < size;) {
    const auto begin = static_cast<std::size_t>(
        std::find(free_.begin() + static_cast<std::ptrdiff_t>(i), free_.end(), 0) - free_.begin());
    const auto end = static_cast<std::size_t>(
        std::find(free_.begin() + static_cast<std::ptrdiff_t>(begin), free_.end(), 1) -
        free_.begin());
    if (begin < end) fixed_.push_back({begin, end});
    i = end;
  }
}

void arena::check_writes() const noexcept {
  for (const range& one : fixed_)
    must(std::memcmp(base_ + one.from, image_.data() + one.from, one.to - one.from) == 0,
         "memory changed that was not granted");
}

void arena::check_leak(const std::byte* bytes, std::size_t count) noexcept {
  // The secret repeats: each of its rotations is within 15 bytes, and an atomic shows one.
  const std::uint64_t word = secret_word();
  if (::memmem(bytes, count, &word, sizeof word) != nullptr)
    violated("memory was read that was not granted");
}

}  // namespace softverbs::fuzz
