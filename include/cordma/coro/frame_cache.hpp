#pragma once

#include <cstddef>

namespace cordma::frame_cache {

/// Bytes kept for reuse per thread and size class; more go back to malloc.
inline constexpr std::size_t bytes_per_class_max = 4 * 1024 * 1024;
/// Frames above this go to malloc and back each time.
inline constexpr std::size_t block_bytes_max = 64 * 1024;

/// Memory for coroutine frames: recycled per thread, by powers of two, so that a warm program
/// makes none with malloc. A frame may be freed on another thread than it came from: it then serves
/// that one. Throws `std::bad_alloc`. Under AddressSanitizer nothing is recycled, so that a use
/// after free is seen.
void* allocate(std::size_t size_bytes);
void deallocate(void* block, std::size_t size_bytes) noexcept;

/// Gives coroutine promises (and other short-lived helpers) their `new` and `delete`.
struct recycled {
  static void* operator new(std::size_t size_bytes) { return allocate(size_bytes); }
  static void operator delete(void* block, std::size_t size_bytes) noexcept {
    deallocate(block, size_bytes);
  }
};

}  // namespace cordma::frame_cache
