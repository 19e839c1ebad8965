#pragma once

#include <cstddef>
#include <cstdint>

namespace support {

/// False where malloc is not libc's: under sanitizers, with -Djemalloc=shared. The counts are 0
/// then, and a test that needs them says so with WARN and returns.
bool counts_allocations() noexcept;

/// Calls of malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign and mmap so far, by
/// the program and all its libraries (`operator new` calls malloc).
std::uint64_t allocation_count() noexcept;
/// Allocations by the calling thread alone.
std::uint64_t thread_allocation_count() noexcept;

/// While one lives, its thread's allocations fail, but for mmap; not where they are not counted.
class no_memory {
 public:
  no_memory() noexcept;
  no_memory(const no_memory&) = delete;
  no_memory& operator=(const no_memory&) = delete;
  ~no_memory();
};

/// From now on each mmap of this thread first calls that with its number of bytes; null: none does.
void call_before_mmap(void (*what)(std::size_t size_bytes)) noexcept;

}  // namespace support
