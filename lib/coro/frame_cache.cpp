#include <cordma/coro/frame_cache.hpp>

#include <array>
#include <bit>
#include <new>
#include <utility>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define CORDMA_RECYCLES_FRAMES 0
#endif
#elif defined(__SANITIZE_ADDRESS__)
#define CORDMA_RECYCLES_FRAMES 0
#endif
#ifndef CORDMA_RECYCLES_FRAMES
#define CORDMA_RECYCLES_FRAMES 1
#endif

namespace cordma::frame_cache {
namespace {

constexpr std::size_t block_bytes_min = 64;
constexpr std::size_t classes = std::countr_zero(block_bytes_max / block_bytes_min) + 1;

struct free_block {
  free_block* next;
};

struct free_list {
  free_block* head;
  std::size_t bytes;
};

// Zero-initialised without a guard, so that the fast path is one TLS load. The blocks go back to
// malloc when the thread ends (`give_back`), which is registered the first time one is kept; frames
// freed after that are not kept.
enum class thread_state : unsigned char { fresh, keeping, ended };
constinit thread_local std::array<free_list, classes> lists{};
constinit thread_local thread_state state = thread_state::fresh;

struct give_back {
  ~give_back() {
    state = thread_state::ended;
    for (free_list& list : lists) {
      while (list.head != nullptr) ::operator delete(std::exchange(list.head, list.head->next));
    }
  }
};

bool begin_to_keep() noexcept {
  if (state == thread_state::ended) return false;
  thread_local give_back at_thread_end;
  static_cast<void>(at_thread_end);
  state = thread_state::keeping;
  return true;
}
bool keeps_blocks() noexcept { return state == thread_state::keeping || begin_to_keep(); }

/// Blocks are of `block_bytes_min << class_of(size)` bytes.
std::size_t class_of(std::size_t size_bytes) noexcept {
  return std::size_t(std::bit_width((size_bytes - (size_bytes != 0)) / block_bytes_min));
}

}  // namespace

void* allocate(std::size_t size_bytes) {
  if (!CORDMA_RECYCLES_FRAMES || size_bytes > block_bytes_max) return ::operator new(size_bytes);
  const std::size_t index = class_of(size_bytes);
  free_list& list = lists[index];
  if (list.head == nullptr) return ::operator new(block_bytes_min << index);
  list.bytes -= block_bytes_min << index;
  return std::exchange(list.head, list.head->next);
}

void deallocate(void* block, std::size_t size_bytes) noexcept {
  if (!CORDMA_RECYCLES_FRAMES || size_bytes > block_bytes_max) return ::operator delete(block);
  const std::size_t index = class_of(size_bytes);
  free_list& list = lists[index];
  const std::size_t bytes = list.bytes + (block_bytes_min << index);
  if (bytes > bytes_per_class_max || !keeps_blocks()) return ::operator delete(block);
  list.bytes = bytes;
  list.head = ::new (block) free_block{list.head};
}

}  // namespace cordma::frame_cache
