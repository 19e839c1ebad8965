#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#define CORDMA_POISONS 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORDMA_POISONS 1
#endif
#endif
#ifdef CORDMA_POISONS
#include <sanitizer/asan_interface.h>
#endif

namespace cordma {

/// AddressSanitizer then reports who touches these bytes; otherwise nothing. A multiple of 8 bytes
/// at a multiple of 8.
inline void poison([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef CORDMA_POISONS
  __asan_poison_memory_region(at, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef CORDMA_POISONS
  __asan_unpoison_memory_region(at, bytes);
#endif
}

}  // namespace cordma
