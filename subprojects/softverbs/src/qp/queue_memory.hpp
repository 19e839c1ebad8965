#pragma once

#include <cstddef>

namespace softverbs {

/// Memory for the queue pairs of the process, packed densely, in huge pages if the system has some.
/// With a thousand queue pairs, page tables would miss the near caches, too. A freed block serves
/// later ones of its size; large blocks go back to the system. \thread any; a fork waits.

/// Allocates a block, aligned to a cache line and not cleared. \errors std::bad_alloc.
void* allocate_queue(std::size_t bytes);
/// Frees a block; `bytes` as allocated.
void free_queue(void* block, std::size_t bytes) noexcept;

}  // namespace softverbs
