#include "allocations.hpp"

#include <atomic>

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>

// A sanitizer's malloc, or jemalloc, is nothing to step in front of.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(CORDMA_SHARED_JEMALLOC)
#define SUPPORT_COUNTS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define SUPPORT_COUNTS 0
#endif
#endif
#ifndef SUPPORT_COUNTS
#define SUPPORT_COUNTS 1
#endif

namespace {

// Relaxed: a count, it publishes nothing.
constinit std::atomic<std::uint64_t> process_count{0};
constinit thread_local std::uint64_t thread_count = 0;
constinit thread_local bool memory_is_out = false;
using mmap_hook = void (*)(std::size_t);
constinit thread_local mmap_hook before_mmap = nullptr;

}  // namespace

namespace support {

bool counts_allocations() noexcept { return SUPPORT_COUNTS; }
std::uint64_t allocation_count() noexcept { return process_count.load(std::memory_order_relaxed); }
std::uint64_t thread_allocation_count() noexcept { return thread_count; }

no_memory::no_memory() noexcept { memory_is_out = true; }
no_memory::~no_memory() { memory_is_out = false; }

void call_before_mmap(void (*what)(std::size_t)) noexcept { before_mmap = what; }

}  // namespace support

#if SUPPORT_COUNTS

namespace {

void count() noexcept {
  process_count.fetch_add(1, std::memory_order_relaxed);
  ++thread_count;
}
/// Counts, and tells whether the test allows memory.
bool there_is_memory() noexcept {
  count();
  if (memory_is_out) errno = ENOMEM;
  return !memory_is_out;
}

}  // namespace

// The program's definitions win over libc's for every library too. glibc's own names for the same
// functions need no dlsym, which would allocate while we are asked to.
extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) { return there_is_memory() ? __libc_malloc(size) : nullptr; }
void* calloc(std::size_t number, std::size_t size) {
  return there_is_memory() ? __libc_calloc(number, size) : nullptr;
}
void* realloc(void* block, std::size_t size) {
  return there_is_memory() ? __libc_realloc(block, size) : nullptr;
}
void* memalign(std::size_t alignment, std::size_t size) {
  return there_is_memory() ? __libc_memalign(alignment, size) : nullptr;
}
void* aligned_alloc(std::size_t alignment, std::size_t size) { return memalign(alignment, size); }
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  const bool is_power_of_two = alignment != 0 && (alignment & (alignment - 1)) == 0;
  if (!is_power_of_two || alignment % sizeof(void*) != 0) return EINVAL;
  void* const found = memalign(alignment, size);
  if (found == nullptr) return ENOMEM;
  *block = found;
  return 0;
}
// _FILE_OFFSET_BITS decides whether a caller gets mmap() or mmap64().
void* mmap64(void* at, std::size_t size, int protection, int flags, int fd, off_t offset) {
  count();
  if (before_mmap != nullptr) before_mmap(size);
  const long mapped = ::syscall(SYS_mmap, at, size, protection, flags, fd, offset);
  return reinterpret_cast<void*>(mapped);  // NOLINT(performance-no-int-to-ptr)
}
void* mmap(void* at, std::size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap64(at, size, protection, flags, fd, offset);
}

}  // extern "C"

#endif
