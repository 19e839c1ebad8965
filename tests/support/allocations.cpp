#include "allocations.hpp"

#include <sys/mman.h>

#include <dlfcn.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define CORDMA_TEST_COUNTS_ALLOCATIONS 0
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define CORDMA_TEST_COUNTS_ALLOCATIONS 0
#endif
#ifndef CORDMA_TEST_COUNTS_ALLOCATIONS
#define CORDMA_TEST_COUNTS_ALLOCATIONS 1
#endif

namespace {

constinit thread_local bool counting = false;
constinit thread_local std::size_t allocations = 0;

}  // namespace

namespace cordma::test {

allocation_count::allocation_count() noexcept {
  allocations = 0;
  counting = true;
}
allocation_count::~allocation_count() { counting = false; }
std::size_t allocation_count::so_far() const noexcept { return allocations; }
bool allocation_count::counts() noexcept { return CORDMA_TEST_COUNTS_ALLOCATIONS != 0; }

}  // namespace cordma::test

#if CORDMA_TEST_COUNTS_ALLOCATIONS

// glibc calls its allocator through these names; ours stand before them in the program's symbols.
// `operator new` of libstdc++ calls malloc or aligned_alloc, so it needs nothing of its own.
extern "C" {

void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* block, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);

static void count_one() noexcept {
  if (counting) ++allocations;
}

void* malloc(std::size_t size) {
  count_one();
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  count_one();
  return __libc_calloc(count, size);
}
void* realloc(void* block, std::size_t size) {
  count_one();
  return __libc_realloc(block, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  count_one();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** block, std::size_t alignment, std::size_t size) {
  count_one();
  *block = __libc_memalign(alignment, size);
  return *block != nullptr ? 0 : 12 /* ENOMEM */;
}
void* mmap(void* address, std::size_t size, int protection, int flags, int fd, off_t offset) {
  using function = void* (*)(void*, std::size_t, int, int, int, off_t);
  static const auto real = reinterpret_cast<function>(::dlsym(RTLD_NEXT, "mmap"));
  count_one();
  return real(address, size, protection, flags, fd, offset);
}

}  // extern "C"

#endif
