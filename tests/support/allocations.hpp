#pragma once

#include <cstddef>

namespace cordma::test {

/// Counts what this thread allocates while it lives: malloc, calloc, realloc, posix_memalign,
/// aligned_alloc, mmap, and with them operator new. One at a time. Link allocations.cpp into the
/// test program. Under ASan and TSan, which bring their own malloc, `counts()` is false.
class allocation_count {
 public:
  allocation_count() noexcept;
  allocation_count(const allocation_count&) = delete;
  allocation_count& operator=(const allocation_count&) = delete;
  ~allocation_count();

  [[nodiscard]] std::size_t so_far() const noexcept;
  [[nodiscard]] static bool counts() noexcept;
};

}  // namespace cordma::test
