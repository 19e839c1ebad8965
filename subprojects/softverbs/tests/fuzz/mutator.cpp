#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>

// Scripts to begin with: plausible acts in a random order, instead of a folder of seeds.

extern "C" {
std::size_t LLVMFuzzerMutate(std::uint8_t* bytes, std::size_t size, std::size_t size_max);
std::size_t LLVMFuzzerCustomMutator(std::uint8_t* bytes, std::size_t size, std::size_t size_max,
                                    unsigned seed);

std::size_t LLVMFuzzerCustomMutator(std::uint8_t* bytes, std::size_t size, std::size_t size_max,
                                    unsigned seed) {
  constexpr unsigned fresh_every = 64;
  constexpr std::size_t fresh_bytes_max = 256;
  if (size > 1 && seed % fresh_every != 0) return LLVMFuzzerMutate(bytes, size, size_max);
  std::minstd_rand random{seed};
  const std::size_t length = std::min(size_max, random() % fresh_bytes_max + 1);
  std::generate_n(bytes, length, [&] { return static_cast<std::uint8_t>(random() >> 8); });
  return length;
}
}
