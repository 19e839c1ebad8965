#include "memory/queue_memory.hpp"

#include <sys/mman.h>

#include <cstdint>
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
constexpr std::size_t huge_bytes = std::size_t{2} << 20;

constexpr std::size_t rounded_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

/// Whole huge pages.
std::byte* map(std::size_t bytes) {
  const std::size_t mapped = bytes + huge_bytes;  // Some of it is in front of the first.
  void* const begin =
      ::mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc{};
  auto* const first = static_cast<std::byte*>(begin);
  const std::size_t in_front = rounded_up(reinterpret_cast<std::uintptr_t>(begin), huge_bytes) -
                               reinterpret_cast<std::uintptr_t>(begin);
  if (in_front != 0) ::munmap(first, in_front);
  if (in_front != huge_bytes) ::munmap(first + in_front + bytes, huge_bytes - in_front);
  ::madvise(first + in_front, bytes, MADV_HUGEPAGE);  // Refused, it has small ones.
  return first + in_front;
}

}  // namespace

queue_memory& queue_memory::of_process() {
  static auto& instance = *new queue_memory;
  return instance;
}

std::byte* queue_memory::take(std::size_t bytes) {
  if (bytes > rest_bytes_) {
    const std::size_t mapped = rounded_up(bytes, huge_bytes);
    rest_ = map(mapped);
    rest_bytes_ = mapped;
  }
  std::byte* const block = rest_;
  rest_ += bytes;
  rest_bytes_ -= bytes;
  return block;
}

#if defined(SOFTVERBS_ADDRESS_SANITIZER)

// So that it watches each of them.
void* queue_memory::allocate(std::size_t bytes) {
  return ::operator new(bytes, std::align_val_t{line_bytes});
}

void queue_memory::free(void* block, std::size_t) noexcept {
  ::operator delete(block, std::align_val_t{line_bytes});
}

#else

void* queue_memory::allocate(std::size_t bytes) {
  bytes = rounded_up(bytes, line_bytes);
  const std::lock_guard lock{mutex_};
  free_block*& last = free_[bytes];
  if (last == nullptr) return take(bytes);
  return std::exchange(last, last->next);
}

void queue_memory::free(void* block, std::size_t bytes) noexcept {
  const std::lock_guard lock{mutex_};
  free_block*& last = free_.find(rounded_up(bytes, line_bytes))->second;
  last = new (block) free_block{last};
}

#endif

}  // namespace softverbs
