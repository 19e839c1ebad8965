#include "allocations.hpp"

#include <atomic>

#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>

namespace {

// Relaxed: a count, it publishes nothing.
constinit std::atomic<std::uint64_t> calls{0};

void count() noexcept { calls.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

std::uint64_t bench::allocation_count() noexcept { return calls.load(std::memory_order_relaxed); }

// The program's definitions win over libc's for every library too. glibc's own names for the same
// functions need no dlsym, which would allocate while we are asked to.
extern "C" {

void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  count();
  return __libc_malloc(size);
}
void* calloc(std::size_t number, std::size_t size) {
  count();
  return __libc_calloc(number, size);
}
void* realloc(void* block, std::size_t size) {
  count();
  return __libc_realloc(block, size);
}
void* memalign(std::size_t alignment, std::size_t size) {
  count();
  return __libc_memalign(alignment, size);
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
  return reinterpret_cast<void*>(::syscall(SYS_mmap, at, size, protection, flags, fd, offset));
}
void* mmap(void* at, std::size_t size, int protection, int flags, int fd, off_t offset) {
  return mmap64(at, size, protection, flags, fd, offset);
}

}  // extern "C"
