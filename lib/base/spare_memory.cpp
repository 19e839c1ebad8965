#include "base/spare_memory.hpp"

#include <algorithm>
#include <utility>

namespace cordma::detail {
namespace {

thread_local spare_memory* memory_of_thread = nullptr;

}  // namespace

spare_memory* spare_memory::current() noexcept { return memory_of_thread; }

void* spare_memory::take(std::size_t bytes) noexcept {
  const auto found = std::ranges::find(ranges_, bytes, &range::bytes);
  return found == ranges_.end() ? nullptr : std::exchange(*found, {}).at;
}

bool spare_memory::give(void* at, std::size_t bytes) noexcept {
  const auto unused = std::ranges::find(ranges_, nullptr, &range::at);
  if (unused == ranges_.end()) return false;
  *unused = {at, bytes};
  return true;
}

std::optional<unsigned> spare_memory::take_arena() noexcept {
  if (arena_count_ == 0) return std::nullopt;
  return arenas_[--arena_count_];
}

bool spare_memory::give_arena(unsigned index) noexcept {
  if (arena_count_ == arenas_.size()) return false;
  arenas_[arena_count_++] = index;
  return true;
}

spare_memory_scope::spare_memory_scope(spare_memory& memory) noexcept
    : outer_{std::exchange(memory_of_thread, &memory)} {}
spare_memory_scope::~spare_memory_scope() { memory_of_thread = outer_; }

}  // namespace cordma::detail
