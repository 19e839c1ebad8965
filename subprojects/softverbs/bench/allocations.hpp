#pragma once

#include <cstdint>

namespace bench {

/// Calls of malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign and mmap so far, by
/// the program and all its libraries (`operator new` calls malloc), on any thread.
std::uint64_t allocation_count() noexcept;

}  // namespace bench
