#pragma once

#include <cordma/detail/base/export.hpp>

#include <array>
#include <bit>
#include <cstddef>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORDMA_RECYCLES_FRAMES 0
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CORDMA_RECYCLES_FRAMES 0
#endif
#ifndef CORDMA_RECYCLES_FRAMES
#define CORDMA_RECYCLES_FRAMES 1
#endif

namespace cordma::frame_cache {

/// Bytes kept for reuse per thread and size class; more return to malloc.
inline constexpr std::size_t bytes_per_class_max = 4 * 1024 * 1024;
/// Largest recycled frame; malloc and free serve larger ones each time.
inline constexpr std::size_t block_bytes_max = 64 * 1024;
/// Frames start on a cache line, so that their cost does not depend on earlier allocations.
inline constexpr std::align_val_t alignment{64};

/// False under AddressSanitizer, so that a use after free is seen. Other caches follow this switch,
/// too.
inline constexpr bool is_recycling = CORDMA_RECYCLES_FRAMES != 0;

namespace detail {

inline constexpr std::size_t block_bytes_min = 64;
inline constexpr std::size_t classes = std::countr_zero(block_bytes_max / block_bytes_min) + 1;

struct free_block {
  free_block* next;
};

struct free_list {
  free_block* head;
  std::size_t bytes;
};

// The list is zero-initialised without a guard, so that the fast path is one TLS load. The blocks
// return to malloc when the thread ends. The first block kept registers that. Frames freed after
// the end are not kept.
enum class thread_state : unsigned char { fresh, keeping, ended };
CORDMA_EXPORT extern constinit thread_local std::array<free_list, classes> lists;
CORDMA_EXPORT extern constinit thread_local thread_state state;

/// Returns the size class. Every block has `block_bytes_min << class_of(size)` bytes, kept or not,
/// because the code that frees it may have been compiled with other flags.
constexpr std::size_t class_of(std::size_t size_bytes) noexcept {
  return std::size_t(std::bit_width((size_bytes - (size_bytes != 0)) / block_bytes_min));
}

CORDMA_EXPORT void give_up(void* block, std::size_t index) noexcept;

}  // namespace detail

/// Allocates a coroutine frame from a per-thread cache of power-of-two sizes, so that a warm
/// program calls no malloc. A frame may be freed on another thread, whose cache then gets it. The
/// function is inline, because the size is mostly known at compile time. \errors `std::bad_alloc`.
inline void* allocate(std::size_t size_bytes) {
  if (size_bytes > block_bytes_max) return ::operator new(size_bytes, alignment);
  const std::size_t index = detail::class_of(size_bytes);
  const std::size_t block_bytes = detail::block_bytes_min << index;
  if (!is_recycling) return ::operator new(block_bytes, alignment);
  detail::free_list& list = detail::lists[index];
  detail::free_block* const first = list.head;
  if (first == nullptr) [[unlikely]]
    return ::operator new(block_bytes, alignment);
  list.bytes -= block_bytes;
  list.head = first->next;
  return first;
}

inline void deallocate(void* block, std::size_t size_bytes) noexcept {
  if (!is_recycling || size_bytes > block_bytes_max) return ::operator delete(block, alignment);
  const std::size_t index = detail::class_of(size_bytes);
  detail::free_list& list = detail::lists[index];
  const std::size_t bytes = list.bytes + (detail::block_bytes_min << index);
  if (bytes > bytes_per_class_max || detail::state != detail::thread_state::keeping) [[unlikely]]
    return detail::give_up(block, index);
  list.bytes = bytes;
  list.head = ::new (block) detail::free_block{list.head};
}

/// Gives coroutine promises (and other short-lived helpers) their `new` and `delete`.
struct recycled {
  static void* operator new(std::size_t size_bytes) { return allocate(size_bytes); }
  static void operator delete(void* block, std::size_t size_bytes) noexcept {
    deallocate(block, size_bytes);
  }
};

namespace detail {

/// The allocator of objects that other libraries allocate. Any thread may deallocate.
template <class T>
struct allocator {
  using value_type = T;
  allocator() noexcept = default;
  template <class U>
  allocator(const allocator<U>& /*other*/) noexcept {}  // NOLINT: allocators convert.
  [[nodiscard]] T* allocate(std::size_t n) {
    return static_cast<T*>(frame_cache::allocate(n * sizeof(T)));
  }
  void deallocate(T* block, std::size_t n) noexcept {
    frame_cache::deallocate(block, n * sizeof(T));
  }
  template <class U>
  bool operator==(const allocator<U>& /*other*/) const noexcept {
    return true;
  }
};

}  // namespace detail
}  // namespace cordma::frame_cache
