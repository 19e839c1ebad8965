#include "qp/queue_memory.hpp"

#include "node/fork_mutex.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
#define SOFTVERBS_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SOFTVERBS_ADDRESS_SANITIZER 1
#endif
#endif

namespace softverbs {
namespace {

constexpr std::size_t line_bytes = 64;

}  // namespace

#if defined(SOFTVERBS_ADDRESS_SANITIZER)

// Separate allocations, so that AddressSanitizer checks each block.
void* allocate_queue(std::size_t bytes) {
  return ::operator new(bytes, std::align_val_t{line_bytes});
}

void free_queue(void* block, std::size_t) noexcept {
  ::operator delete(block, std::align_val_t{line_bytes});
}

#else

namespace {

constexpr std::size_t huge_bytes = std::size_t{2} << 20;

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// Maps whole huge pages.
std::byte* map(std::size_t bytes) {
  const std::size_t mapped = bytes + huge_bytes;  // One huge page more, for the alignment.
  void* const begin =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc{};
  auto* const first = static_cast<std::byte*>(begin);
  const std::size_t in_front = rounded_up(reinterpret_cast<std::uintptr_t>(begin), huge_bytes) -
                               reinterpret_cast<std::uintptr_t>(begin);
  if (in_front != 0) ::munmap(first, in_front);
  if (in_front != huge_bytes) ::munmap(first + in_front + bytes, huge_bytes - in_front);
  ::madvise(first + in_front, bytes, MADV_HUGEPAGE);  // If refused, the memory has small pages.
  return first + in_front;
}

/// A block of this size or more has pages of its own, which are returned to the system.
constexpr std::size_t large_bytes = std::size_t{1} << 20;

struct free_block {
  free_block* next;
};

fork_mutex mutex;
// Guards the variables below.
constinit std::byte* rest = nullptr;  ///< rest of the last mapped huge page
constinit std::size_t rest_bytes = 0;
/// The free blocks of each size ever allocated. Never destroyed, because queue pairs may be
/// destroyed last.
constinit std::map<std::size_t, free_block*>* freed = nullptr;

std::byte* take(std::size_t bytes) {
  if (bytes > rest_bytes) {
    rest = map(huge_bytes);
    rest_bytes = huge_bytes;
  }
  rest_bytes -= bytes;
  return std::exchange(rest, rest + bytes);
}

}  // namespace

void* allocate_queue(std::size_t bytes) {
  if (bytes >= large_bytes) return map(rounded_up(bytes, huge_bytes));
  bytes = rounded_up(bytes, line_bytes);
  const std::lock_guard lock{mutex};
  if (freed == nullptr) freed = new std::map<std::size_t, free_block*>;
  free_block*& last = (*freed)[bytes];
  if (last == nullptr) return take(bytes);
  return std::exchange(last, last->next);
}

void free_queue(void* block, std::size_t bytes) noexcept {
  if (bytes >= large_bytes) {
    ::munmap(block, rounded_up(bytes, huge_bytes));
    return;
  }
  const std::lock_guard lock{mutex};
  free_block*& last = freed->find(rounded_up(bytes, line_bytes))->second;
  last = new (block) free_block{last};
}

#endif

}  // namespace softverbs
