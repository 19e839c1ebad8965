#pragma once

#include <cstddef>
#include <map>
#include <mutex>

namespace softverbs {

/// Memory for the queue pairs of a process, as dense as they are and in huge pages where the system
/// has some: of a thousand in turn the page tables are in no near cache either. What is given back
/// is for those of the same size. Thread: any.
class queue_memory {
 public:
  /// Never destroyed: queue pairs may be after everything else.
  static queue_memory& of_process();

  /// Aligned to a cache line, not cleared. Throws std::bad_alloc.
  void* allocate(std::size_t bytes);
  /// `bytes` as allocated.
  void free(void* block, std::size_t bytes) noexcept;

 private:
  struct free_block {
    free_block* next;
  };

  std::byte* take(std::size_t bytes);

  std::mutex mutex_;
  std::byte* rest_ = nullptr;  ///< of the mapping made last
  std::size_t rest_bytes_ = 0;
  std::map<std::size_t, free_block*> free_;  ///< by size; every size ever allocated is there
};

}  // namespace softverbs
