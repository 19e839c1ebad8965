#pragma once

#include <cstddef>

// This file tells the sanitizers about cordma's allocator. Without them, it does nothing.

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORDMA_ADDRESS_SANITIZER 1
#endif
#if __has_feature(thread_sanitizer)
#define CORDMA_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(CORDMA_ADDRESS_SANITIZER)
#define CORDMA_ADDRESS_SANITIZER 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(CORDMA_THREAD_SANITIZER)
#define CORDMA_THREAD_SANITIZER 1
#endif

#ifdef CORDMA_ADDRESS_SANITIZER
#include <sanitizer/asan_interface.h>
#endif
#ifdef CORDMA_THREAD_SANITIZER
#include <sanitizer/tsan_interface.h>
#endif

namespace cordma {

/// Makes AddressSanitizer report accesses to these bytes.
inline void poison([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef CORDMA_ADDRESS_SANITIZER
  __asan_poison_memory_region(at, bytes);
#endif
}
inline void unpoison([[maybe_unused]] const void* at, [[maybe_unused]] std::size_t bytes) noexcept {
#ifdef CORDMA_ADDRESS_SANITIZER
  __asan_unpoison_memory_region(at, bytes);
#endif
}

/// Orders all frees before all later allocations for ThreadSanitizer. jemalloc orders a free only
/// before the allocation that gets the memory next, by locks that the sanitizer does not see.
inline void freed_of([[maybe_unused]] void* allocator) noexcept {
#ifdef CORDMA_THREAD_SANITIZER
  __tsan_release(allocator);
#endif
}
inline void allocated_of([[maybe_unused]] void* allocator) noexcept {
#ifdef CORDMA_THREAD_SANITIZER
  __tsan_acquire(allocator);
#endif
}

}  // namespace cordma
