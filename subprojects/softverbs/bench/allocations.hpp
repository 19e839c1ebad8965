#pragma once

#include <cstdint>

namespace bench {

/// Counts calls of malloc, calloc, realloc, posix_memalign, aligned_alloc, memalign and mmap so
/// far, on any thread. Calls of all libraries count, and `operator new` calls malloc.
std::uint64_t allocation_count() noexcept;

}  // namespace bench
