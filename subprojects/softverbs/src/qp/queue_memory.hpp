#pragma once

#include <cstddef>

namespace softverbs {

/// Memory for the queue pairs of the process, as dense as they are and in huge pages where the
/// system has some: of a thousand in turn the page tables are in no near cache either. What is
/// given back is for those of the same size, but for large blocks. Thread: any; a fork waits.

/// Aligned to a cache line, not cleared. Throws std::bad_alloc.
void* allocate_queue(std::size_t bytes);
/// `bytes` as allocated.
void free_queue(void* block, std::size_t bytes) noexcept;

}  // namespace softverbs
